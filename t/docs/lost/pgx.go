package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v4"
)

func main() {
	ctx := context.Background()
	shards := NewShards()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var port string
		err := shards.Of(ctx, 31341, func(tx pgx.Tx, schema string) error {
			return tx.QueryRow(ctx, "INSERT INTO "+schema+".photos (user_id, caption) VALUES (31341, 'a') RETURNING current_setting('port')").Scan(&port)
		})
		if err != nil {
			port = "lost " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(port)
	}
}
