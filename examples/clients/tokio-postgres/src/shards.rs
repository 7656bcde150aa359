//! Where shards live, and what a client does when one has moved.

use std::collections::HashMap;
use std::env;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio_postgres::{Client, Config, Error, NoTls};

const SHARDS: i64 = 2000;

/// SN001: the shard has moved. SN002: it is not open there yet. 3F000, 42P01: the
/// copy that the move has left has been renamed, or dropped.
const REFUSALS: [&str; 4] = ["SN001", "SN002", "3F000", "42P01"];

pub type Work<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + 'a>>;

#[derive(Default)]
pub struct Shards {
    clients: HashMap<String, Client>, // by home
    homes: HashMap<i64, String>,      // by shard, where it is not the first server
}

impl Shards {
    pub fn number(user: i64) -> i64 {
        user.rem_euclid(SHARDS)
    }

    /// Runs one statement, or one transaction, where the user's shard lives. If the
    /// server refuses it since the shard has moved, nothing of it has happened, and it
    /// is done again at the new home.
    pub async fn of<T, F>(&mut self, user: i64, work: F) -> Result<T, Error>
    where
        F: for<'a> Fn(&'a Client, &'a str) -> Work<'a, T>,
    {
        let shard = Shards::number(user);
        let schema = format!("insta{shard}");
        let begin = Instant::now();
        loop {
            let home = self.homes.get(&shard).cloned().unwrap_or_default();
            let client = match self.client(&home).await {
                Ok(client) => client,
                Err(error) => {
                    // That server may be no more; the first one knows.
                    self.homes.remove(&shard);
                    return Err(error);
                }
            };
            let error = match work(client, &schema).await {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            let state = error.code().map_or("", |state| state.code());
            if !REFUSALS.contains(&state) || begin.elapsed() > Duration::from_secs(30) {
                if state.is_empty() || state.starts_with("57P") || state == "25006" {
                    self.homes.remove(&shard);
                }
                return Err(error);
            }
            let row = client
                .query_one("SELECT snowid.shard_home($1)", &[&(shard as i32)])
                .await?;
            let home: String = row.get(0);
            if home == "missing" || home == "here" && !state.starts_with("SN") {
                return Err(error);
            }
            if state == "SN002" || home == "closed" {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            if home != "here" && home != "closed" {
                self.homes.insert(shard, home);
            }
        }
    }

    /// A home is a connection string as the registry has it; what it lacks is from
    /// PGHOST and so on.
    async fn client(&mut self, home: &str) -> Result<&Client, Error> {
        if self.clients.get(home).map_or(true, Client::is_closed) {
            let mut config: Config = home.parse()?;
            if config.get_hosts().is_empty() {
                config.host(&env::var("PGHOST").unwrap_or_else(|_| "localhost".into()));
            }
            if config.get_ports().is_empty() {
                config.port(env::var("PGPORT").map_or(5432, |port| port.parse().expect("PGPORT")));
            }
            if config.get_user().is_none() {
                config.user(&env::var("PGUSER").expect("PGUSER"));
            }
            if config.get_dbname().is_none() {
                config.dbname(&env::var("PGDATABASE").expect("PGDATABASE"));
            }
            let (client, connection) = config.connect(NoTls).await?;
            tokio::spawn(connection);
            self.clients.insert(home.to_string(), client);
        }
        Ok(&self.clients[home])
    }
}
