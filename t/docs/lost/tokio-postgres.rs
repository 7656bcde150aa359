mod shards;

use shards::Shards;
use std::io;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut shards = Shards::default();
    for _ in io::stdin().lines() {
        let port = shards
            .of(31341, |client, schema| {
                Box::pin(async move {
                    let sql = format!("INSERT INTO {schema}.photos (user_id, caption) VALUES (31341, 'a') RETURNING current_setting('port')");
                    Ok(client.query_one(&sql, &[]).await?.get::<_, String>(0))
                })
            })
            .await;
        println!("{}", port.unwrap_or_else(|error| format!("lost {error}")));
    }
}
