package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/lib/pq"
)

const shardCount = 2000

// Shards knows where shards live, and what to do when one has moved.  It is for many
// goroutines.
type Shards struct {
	lock  sync.Mutex
	pools map[string]*sql.DB // by home
	homes map[int64]string   // by shard, where it is not the first server
	limit time.Duration
}

// The remainder that is not negative.
func shardOf(user int64) int64 {
	return (user%shardCount + shardCount) % shardCount
}

// NewShards makes one that begins with the server of PGHOST, PGPORT and so on.
func NewShards() *Shards {
	return &Shards{pools: map[string]*sql.DB{}, homes: map[int64]string{}, limit: 30 * time.Second}
}

// Of runs work in a transaction in the user's shard.  If the server refuses it since
// the shard has moved, nothing of it has happened, and it is done again at the new
// home.
func (s *Shards) Of(ctx context.Context, user int64, work func(tx *sql.Tx, schema string) error) error {
	shard := shardOf(user)
	deadline := time.Now().Add(s.limit)
	for {
		pool, err := s.pool(shard)
		if err != nil {
			s.setHome(shard, "")
			return err
		}
		err = transact(ctx, pool, func(tx *sql.Tx) error { return work(tx, fmt.Sprintf("insta%d", shard)) })

		// SN001: the shard has moved.  SN002: it is not open there yet.  3F000, 42P01:
		// the copy that the move has left has been renamed, or dropped.
		var refusal *pq.Error
		// 25006, 0A000: a standby can only be read; BEGIN says READ WRITE here.
		if err != nil && (!errors.As(err, &refusal) || strings.Contains("25006 0A000", string(refusal.Code)) || strings.HasPrefix(string(refusal.Code), "57P")) {
			s.setHome(shard, "") // that server may be no more; the first one knows
		}
		if refusal == nil || !strings.Contains("SN001 SN002 3F000 42P01", string(refusal.Code)) || time.Now().After(deadline) {
			return err
		}
		var home string
		if err := pool.QueryRowContext(ctx, "SELECT snowid.shard_home($1)", shard).Scan(&home); err != nil {
			return err
		}
		if home == "missing" || home == "here" && !strings.HasPrefix(string(refusal.Code), "SN") {
			return err
		}
		if home != "here" && home != "closed" {
			s.setHome(shard, home)
		}
		if refusal.Code == "SN002" || home == "closed" {
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func transact(ctx context.Context, pool *sql.DB, work func(tx *sql.Tx) error) error {
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // of no effect after a commit
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func (s *Shards) setHome(shard int64, home string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.homes[shard] = home
}

// Close closes all connections.
func (s *Shards) Close() {
	for _, pool := range s.pools {
		pool.Close()
	}
}

// A home is a connection string as the registry has it; what it lacks is from PGHOST
// and so on.
func (s *Shards) pool(shard int64) (*sql.DB, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	name := s.homes[shard]
	if pool := s.pools[name]; pool != nil {
		return pool, nil
	}
	home, err := parseHome(name)
	if err != nil {
		return nil, err
	}
	s.pools[name] = sql.OpenDB(home)
	return s.pools[name], nil
}

// The driver knows neither several hosts nor target_session_attrs.
type home struct {
	servers []string
	wanted  string
}

var pair = regexp.MustCompile(`(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|\S*)`)

var uri = regexp.MustCompile(`^(postgres(?:ql)?://(?:[^@/]*@)?)([^/?]*)(.*)$`)

func parseHome(text string) (*home, error) {
	parts := uri.FindStringSubmatch(text)
	if parts == nil {
		return parsePairs(text), nil
	}
	h := &home{}
	for _, place := range strings.Split(parts[2], ",") {
		pairs, err := pq.ParseURL(parts[1] + place + parts[3])
		if err != nil {
			return nil, err
		}
		one := parsePairs(pairs)
		h.wanted, h.servers = one.wanted, append(h.servers, one.servers...)
	}
	return h, nil
}

func parsePairs(pairs string) *home {
	given := map[string]string{"target_session_attrs": "any"}

	// For PgBouncer before 1.21: a statement is prepared and executed in one round trip.
	rest := "binary_parameters=yes"

	// Nor does it know libpq's sslmodes "prefer" and "allow"; others it takes from the environment.
	mode := os.Getenv("PGSSLMODE")
	if !strings.Contains(pairs, "sslrootcert") && (mode == "" || mode == "prefer" || mode == "allow") {
		rest += " sslmode=disable"
	}
	for _, found := range pair.FindAllStringSubmatch(pairs, -1) {
		switch found[1] {
		case "host", "port", "target_session_attrs":
			given[found[1]] = strings.Trim(found[2], "'")
		default:
			rest += " " + found[0]
		}
	}
	h := &home{wanted: given["target_session_attrs"]}
	ports := strings.Split(given["port"], ",")
	for n, host := range strings.Split(given["host"], ",") {
		server := rest
		if host != "" {
			server += " host='" + host + "'"
		}
		if port := ports[n%len(ports)]; port != "" {
			server += " port=" + port
		}
		h.servers = append(h.servers, server)
	}
	return h
}

// Connect goes to the first server that answers, and is what is wanted.
func (h *home) Connect(ctx context.Context) (driver.Conn, error) {
	refused := fmt.Errorf("no server of the home is %s", h.wanted)
	for _, server := range h.servers {
		connector, err := pq.NewConnector(server)
		if err != nil {
			return nil, err
		}
		conn, err := connector.Connect(ctx)
		if err != nil {
			refused = err
			continue
		}
		rows, err := conn.(driver.QueryerContext).QueryContext(ctx, `
			SELECT CASE $1 WHEN 'any' THEN true WHEN 'read-write' THEN writes WHEN 'read-only' THEN NOT writes
				WHEN 'primary' THEN NOT standby WHEN 'standby' THEN standby END
			FROM (SELECT current_setting('transaction_read_only') = 'off', pg_is_in_recovery()) AS s (writes, standby)`,
			[]driver.NamedValue{{Ordinal: 1, Value: h.wanted}})
		suits := make([]driver.Value, 1)
		if err == nil {
			err = rows.Next(suits)
			rows.Close()
		}
		if err == nil && suits[0] == true {
			return conn, nil
		}
		conn.Close()
	}
	return nil, refused
}

// Driver is for database/sql.
func (h *home) Driver() driver.Driver { return pq.Driver{} }
