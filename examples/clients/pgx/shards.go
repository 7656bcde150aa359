package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgx/v4"
	"github.com/jackc/pgx/v4/pgxpool"
)

const shardCount = 2000

// Shards knows where shards live, and what to do when one has moved.  It is for many
// goroutines.
type Shards struct {
	lock  sync.Mutex
	pools map[string]*pgxpool.Pool // by home
	homes map[int64]string         // by shard, where it is not the first server
	limit time.Duration
}

// The remainder that is not negative.
func shardOf(user int64) int64 {
	return (user%shardCount + shardCount) % shardCount
}

// NewShards makes one that begins with the server of PGHOST, PGPORT and so on.
func NewShards() *Shards {
	return &Shards{pools: map[string]*pgxpool.Pool{}, homes: map[int64]string{}, limit: 30 * time.Second}
}

// Of runs work in a transaction in the user's shard.  If the server refuses it since
// the shard has moved, nothing of it has happened, and it is done again at the new
// home.
func (s *Shards) Of(ctx context.Context, user int64, work func(tx pgx.Tx, schema string) error) error {
	shard := shardOf(user)
	deadline := time.Now().Add(s.limit)
	for {
		pool, err := s.pool(ctx, shard)
		if err != nil {
			s.setHome(shard, "")
			return err
		}
		err = pool.BeginFunc(ctx, func(tx pgx.Tx) error { return work(tx, fmt.Sprintf("insta%d", shard)) })

		// SN001: the shard has moved.  SN002: it is not open there yet.  3F000, 42P01:
		// the copy that the move has left has been renamed, or dropped.
		var refusal *pgconn.PgError
		if err != nil && (!errors.As(err, &refusal) || refusal.Code == "25006" || strings.HasPrefix(refusal.Code, "57P")) {
			s.setHome(shard, "") // that server may be no more; the first one knows
		}
		if refusal == nil || !strings.Contains("SN001 SN002 3F000 42P01", refusal.Code) || time.Now().After(deadline) {
			return err
		}
		var home string
		if err := pool.QueryRow(ctx, "SELECT snowid.shard_home($1)", shard).Scan(&home); err != nil {
			return err
		}
		if home == "missing" || home == "here" && !strings.HasPrefix(refusal.Code, "SN") {
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
func (s *Shards) pool(ctx context.Context, shard int64) (*pgxpool.Pool, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	home := s.homes[shard]
	if pool := s.pools[home]; pool != nil {
		return pool, nil
	}
	config, err := pgxpool.ParseConfig(home)
	if err != nil {
		return nil, err
	}
	// For PgBouncer before 1.21: no statements that have names.
	config.ConnConfig.BuildStatementCache = nil
	config.ConnConfig.PreferSimpleProtocol = true
	config.LazyConnect = true
	pool, err := pgxpool.ConnectConfig(ctx, config)
	if err == nil {
		s.pools[home] = pool
	}
	return pool, err
}
