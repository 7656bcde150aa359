package main

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
)

func main() {
	ctx := context.Background()
	shards := NewShards()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var port string
		err := shards.Of(ctx, 31341, func(tx *sql.Tx, schema string) error {
			return tx.QueryRowContext(ctx, "INSERT INTO "+schema+".photos (user_id, caption) VALUES (31341, 'a') RETURNING current_setting('port')").Scan(&port)
		})
		if err != nil {
			port = "lost " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(port)
	}
}
