use super::*;
use futures::StreamExt;
use std::time::Duration;

/// Far longer than anything here takes; a test that hangs fails by this.
const BOUND: Duration = Duration::from_secs(20);

async fn write(logs: &Logs, run: u32, output: &[u8]) {
    let writer = Arc::new(Mutex::new(logs.writer("uid", "main", run).unwrap()));
    copy(Channel::Stdout, output, writer).await;
}

async fn read(logs: &Logs, options: LogOptions) -> String {
    let stream = logs.open("uid", "main", options).await.unwrap();
    let chunks: Vec<_> = tokio::time::timeout(BOUND, stream.collect()).await.unwrap();
    let bytes: Vec<u8> = chunks.into_iter().flat_map(|chunk| chunk.unwrap().to_vec()).collect();
    String::from_utf8(bytes).unwrap()
}

fn logs() -> (tempfile::TempDir, Logs) {
    let directory = tempfile::tempdir().unwrap();
    let logs = Logs::new(directory.path());
    (directory, logs)
}

#[tokio::test]
async fn output_comes_back_as_it_was_written() {
    let (_directory, logs) = logs();
    let long = "x".repeat(3 * MAX_ENTRY_BYTES + 7);
    let text = format!("a\n\n{long}\nno line feed");
    write(&logs, 0, text.as_bytes()).await;
    assert_eq!(read(&logs, LogOptions::default()).await, text);
}

#[tokio::test]
async fn tail_since_limit_and_timestamps_choose_what_is_shown() {
    let (_directory, logs) = logs();
    write(&logs, 0, b"1\n2\n3\n").await;
    let tail = |n| LogOptions { tail_lines: Some(n), ..LogOptions::default() };
    for (lines, expect) in [(0, ""), (1, "3\n"), (2, "2\n3\n"), (3, "1\n2\n3\n"), (9, "1\n2\n3\n")] {
        assert_eq!(read(&logs, tail(lines)).await, expect, "tail {lines}");
    }
    let limit = LogOptions { limit_bytes: Some(3), ..LogOptions::default() };
    assert_eq!(read(&logs, limit).await, "1\n2");
    let since = |at| LogOptions { since_time: Some(at), ..LogOptions::default() };
    assert_eq!(read(&logs, since(Timestamp::MIN)).await, "1\n2\n3\n");
    assert_eq!(read(&logs, since(Timestamp::now() + SignedDuration::from_secs(60))).await, "");
    let hour = LogOptions { since_seconds: Some(3600), ..LogOptions::default() };
    assert_eq!(read(&logs, hour).await, "1\n2\n3\n");
    let stamped = read(&logs, LogOptions { timestamps: true, ..LogOptions::default() }).await;
    for (line, text) in stamped.lines().zip(["1", "2", "3"]) {
        let (at, rest) = line.split_once(' ').unwrap();
        assert!(
            at.parse::<Timestamp>().is_ok() && at.len() == "2026-11-15T20:00:00.000000000Z".len(),
            "{line}"
        );
        assert_eq!(rest, text);
    }
}

#[tokio::test]
async fn a_line_in_several_entries_has_one_timestamp_and_counts_once() {
    let (_directory, logs) = logs();
    let long = "x".repeat(2 * MAX_ENTRY_BYTES);
    write(&logs, 0, format!("1\n{long}\n").as_bytes()).await;
    let options = LogOptions { tail_lines: Some(1), timestamps: true, ..LogOptions::default() };
    let shown = read(&logs, options).await;
    assert_eq!(shown.matches('Z').count(), 1);
    assert!(shown.ends_with(&format!(" {long}\n")));
}

#[tokio::test]
async fn the_previous_run_is_kept_and_the_one_before_it_is_not() {
    let (directory, logs) = logs();
    let previous = || LogOptions { previous: true, ..LogOptions::default() };
    assert!(matches!(logs.open("uid", "main", previous()).await.err(), Some(Error::NoPrevious { .. })));
    assert!(matches!(
        logs.open("uid", "main", LogOptions::default()).await.err(),
        Some(Error::NotStarted { .. })
    ));
    for run in 0..3 {
        write(&logs, run, format!("run {run}\n").as_bytes()).await;
    }
    assert_eq!(read(&logs, LogOptions::default()).await, "run 2\n");
    assert_eq!(read(&logs, previous()).await, "run 1\n");
    assert!(!part_path(&directory.path().join("uid/main"), 0, 0).exists());
}

#[tokio::test]
async fn between_two_runs_the_previous_one_is_the_last() {
    let (_directory, logs) = logs();
    let previous = LogOptions { previous: true, ..LogOptions::default() };
    write(&logs, 0, b"first\n").await;
    assert!(logs.open("uid", "main", previous.clone()).await.is_err());
    logs.run_is_over("uid", "main");
    assert_eq!(read(&logs, previous.clone()).await, "first\n");
    write(&logs, 1, b"second\n").await;
    assert_eq!(read(&logs, previous.clone()).await, "first\n");
    logs.run_is_over("uid", "main");
    assert_eq!(read(&logs, previous).await, "second\n");
}

#[tokio::test]
async fn a_name_that_is_a_path_names_nothing() {
    let (_directory, logs) = logs();
    write(&logs, 0, b"x\n").await;
    for (pod, container) in
        [("uid", "../uid/main"), ("uid/main", ".."), ("..", "main"), ("", "main"), ("uid", "")]
    {
        let opened = logs.open(pod, container, LogOptions::default()).await;
        assert!(matches!(opened.err(), Some(Error::NotStarted { .. })), "{pod} {container}");
    }
}

#[tokio::test]
async fn a_full_part_is_followed_by_the_next_and_the_oldest_goes() {
    let (directory, logs) = logs();
    let line = format!("{}\n", "y".repeat(MAX_ENTRY_BYTES - 1));
    let mut writer = logs.writer("uid", "main", 0).unwrap();
    let mut entries = Vec::new();
    (0..64).for_each(|_| entry(&mut entries, Channel::Stdout, 'F', line.trim_end().as_bytes()));
    let appends = (MAX_PARTS + 2) * MAX_PART_BYTES / entries.len() as u64;
    (0..appends).for_each(|_| writer.append(&entries).unwrap());
    drop(writer);
    let home = directory.path().join("uid/main");
    assert_eq!(parts(&home, 0).unwrap().len() as u64, MAX_PARTS);
    for part in parts(&home, 0).unwrap() {
        assert!(fs::metadata(part_path(&home, 0, part)).unwrap().len() <= MAX_PART_BYTES);
    }
    let tail = LogOptions { tail_lines: Some(1500), ..LogOptions::default() };
    assert_eq!(read(&logs, tail).await, line.repeat(1500));
}

#[tokio::test]
async fn a_follower_sees_each_write_and_ends_with_the_run() {
    let (_directory, logs) = logs();
    let (mut process, output) = tokio::io::duplex(64);
    let writer = Arc::new(Mutex::new(logs.writer("uid", "main", 0).unwrap()));
    let copying = tokio::spawn(copy(Channel::Stderr, output, writer));
    let follow = LogOptions { follow: true, ..LogOptions::default() };
    let mut stream = Box::pin(logs.open("uid", "main", follow).await.unwrap());
    for text in ["one\n", "two\n"] {
        tokio::io::AsyncWriteExt::write_all(&mut process, text.as_bytes()).await.unwrap();
        let chunk = tokio::time::timeout(BOUND, stream.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(chunk, text);
    }
    drop(process);
    copying.await.unwrap();
    assert!(tokio::time::timeout(BOUND, stream.next()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_follower_goes_on_into_the_next_part() {
    let (_directory, logs) = logs();
    let mut writer = logs.writer("uid", "main", 0).unwrap();
    let mut first = Vec::new();
    let text = "z".repeat(MAX_ENTRY_BYTES);
    (0..600).for_each(|_| entry(&mut first, Channel::Stdout, 'F', text.as_bytes()));
    writer.append(&first).unwrap();
    let follow = LogOptions { follow: true, tail_lines: Some(1), ..LogOptions::default() };
    let mut stream = Box::pin(logs.open("uid", "main", follow).await.unwrap());
    let chunk = stream.next().await.unwrap().unwrap();
    assert_eq!(chunk.len(), MAX_ENTRY_BYTES + 1);
    writer.append(&first).unwrap();
    writer.append(b"2026-11-15T20:00:00.000000000Z stdout F last\n").unwrap();
    drop(writer);
    let rest: Vec<_> = tokio::time::timeout(BOUND, stream.collect()).await.unwrap();
    let rest: Vec<u8> =
        rest.into_iter().flat_map(|chunk: io::Result<Bytes>| chunk.unwrap().to_vec()).collect();
    assert_eq!(rest.len(), 600 * (MAX_ENTRY_BYTES + 1) + "last\n".len());
    assert!(rest.ends_with(b"last\n"));
}
