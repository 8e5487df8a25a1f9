//! A producer and a reader of rskafka that keep their connections for some seconds.
use chrono::Utc;
use rskafka::client::{partition::{Compression, OffsetAt, UnknownTopicHandling}, ClientBuilder};
use rskafka::record::Record;
use std::{collections::BTreeMap, env, fs, sync::Arc, time::{Duration, Instant}};

#[tokio::main]
async fn main() {
    let bootstrap = env::var("BOOTSTRAP").unwrap();
    let seconds: f64 = env::args().nth(1).unwrap().parse().unwrap();
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let client = ClientBuilder::new(vec![bootstrap]).client_id("rskafka").build().await.unwrap();
    let _ = client.controller_client().unwrap().create_topic("orders", 2, 1, 5_000).await;
    let partition = Arc::new(client.partition_client("orders", 0, UnknownTopicHandling::Retry).await.unwrap());
    let start = partition.get_offset(OffsetAt::Latest).await.unwrap();
    let reading = partition.clone();
    let reader = tokio::spawn(async move {
        let mut next = start;
        while Instant::now() < end {
            let (records, _) = reading.fetch_records(next, 1..1_000_000, 300).await.unwrap();
            if let Some(last) = records.last() { next = last.offset + 1; }
        }
    });
    let mut rows = vec![];
    while Instant::now() < end {
        let record = Record { key: None, value: Some(b"steady".to_vec()), headers: BTreeMap::new(), timestamp: Utc::now() };
        let offset = partition.produce(vec![record], Compression::Gzip).await.unwrap()[0];
        rows.push(format!("{{\"partition\":0,\"offset\":{offset}}}"));
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    reader.await.unwrap();
    fs::write(env::var("FACTS").unwrap(), format!("{{\"produced\":[{}]}}", rows.join(","))).unwrap();
}
