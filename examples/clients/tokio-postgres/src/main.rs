//! Photos of a user, in the shard where the user lives.
//!
//!     cargo run 31341

mod shards;

use shards::Shards;
use std::time::{Duration, SystemTime};
use tokio_postgres::Error;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let user: i64 = std::env::args()
        .nth(1)
        .expect("user")
        .parse()
        .expect("user");
    let mut shards = Shards::default();
    println!("user {user} lives in shard {}", Shards::number(user));

    // The schema qualifies all names: no SET search_path.
    let first = shards
        .of(user, move |client, schema| {
            Box::pin(async move {
                let sql = format!(
                    "INSERT INTO {schema}.photos (user_id, caption) VALUES ($1, $2) RETURNING id"
                );
                let row = client.query_one(&sql, &[&user, &"the first"]).await?;
                Ok(row.get::<_, i64>(0))
            })
        })
        .await?;
    println!("inserted {first}");

    let more = shards
        .of(user, move |client, schema| {
            Box::pin(async move {
                let captions: Vec<String> = (1..=1000).map(|n| format!("photo {n}")).collect();
                let sql = format!(
                    "INSERT INTO {schema}.photos (user_id, caption) SELECT $1, unnest($2::text[]) RETURNING id"
                );
                let rows = client.query(&sql, &[&user, &captions]).await?;
                Ok(rows.iter().map(|row| row.get::<_, i64>(0)).collect::<Vec<_>>())
            })
        })
        .await?;
    println!(
        "inserted {} more, the last {}",
        more.len(),
        more[more.len() - 1]
    );

    let (made, text, shard) = shards
        .of(user, move |client, _| {
            Box::pin(async move {
                let sql = "SELECT created_at, created_at::text, shard FROM snowid.id_parts($1)";
                let row = client.query_one(sql, &[&first]).await?;
                Ok((
                    row.get::<_, SystemTime>(0),
                    row.get::<_, String>(1),
                    row.get::<_, i32>(2),
                ))
            })
        })
        .await?;
    println!("made {text} in shard {shard}");

    let (count, newest) = shards
        .of(user, move |client, schema| {
            Box::pin(async move {
                let sql =
                    format!("SELECT count(*), max(id) FROM {schema}.photos WHERE snowid.id_between(id, $1, $2)");
                let row = client
                    .query_one(&sql, &[&made, &(made + Duration::from_secs(60))])
                    .await?;
                Ok((row.get::<_, i64>(0), row.get::<_, i64>(1)))
            })
        })
        .await?;
    println!("in the minute from then: {count} photos, the newest {newest}");

    // The next page has the ids below the last one of this page.
    let mut count = 0;
    let mut last = i64::MAX;
    loop {
        let page = shards
            .of(user, move |client, schema| {
                Box::pin(async move {
                    let sql = format!(
                        "SELECT id FROM {schema}.photos WHERE user_id = $1 AND id < $2 ORDER BY id DESC LIMIT 400"
                    );
                    let rows = client.query(&sql, &[&user, &last]).await?;
                    Ok(rows.iter().map(|row| row.get::<_, i64>(0)).collect::<Vec<_>>())
                })
            })
            .await?;
        count += page.len();
        last = *page.last().unwrap_or(&last);
        if page.len() < 400 {
            break;
        }
    }
    println!("in pages of 400: {count} photos, the oldest {last}");
    Ok(())
}
