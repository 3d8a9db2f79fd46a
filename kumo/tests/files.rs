//! `kumo fs`: every command, its exit status and its JSON.

mod support;

use serde_json::{Value, json};
use support::{Cell, assert_status};

#[test]
fn files_and_directories_by_command() {
    let cell = Cell::up();
    let bytes: Vec<u8> = (0..=255).cycle().take(5000).collect();
    let put = cell.kumo_with(&["fs", "put", "/a/b/raw", "--format", "json"], &bytes);
    assert_status(&["put"], &put, 0);
    let put: Value = serde_json::from_slice(&put.stdout).unwrap();
    assert_eq!((put["count"].as_u64(), put["length"].as_u64()), (Some(5000), Some(5000)));
    assert_eq!(cell.done(&["fs", "cat", "/a/b/raw"]), bytes);
    assert_eq!(cell.done(&["fs", "cat", "/a/b/raw", "--any"]), bytes);
    let cat = cell.json(&["fs", "cat", "/a/b/raw"]);
    assert_eq!(
        (cat["encoding"].as_str(), cat["version"].as_u64()),
        (Some("base64"), put["version"].as_u64())
    );

    assert_status(&["append"], &cell.kumo_with(&["fs", "append", "/log", "-"], b"one\n"), 0);
    assert_status(&["append"], &cell.kumo_with(&["fs", "append", "/log"], b"two\n"), 0);
    assert_eq!(cell.done(&["fs", "cat", "/log"]), b"one\ntwo\n");
    assert_eq!(cell.json(&["fs", "cat", "/log"])["data"], "one\ntwo\n");

    let stat = cell.json(&["fs", "stat", "/log"]);
    assert_eq!((stat["kind"].as_str(), stat["length"].as_u64()), (Some("file"), Some(8)));
    assert!(stat["created_ms"].as_u64().unwrap() > 1_600_000_000_000);
    assert!(stat["session"].is_null());

    assert_eq!(cell.done(&["fs", "ls"]), b"a/\nlog\n");
    let listed = cell.json(&["fs", "ls", "/"]);
    assert_eq!((listed["total"].as_u64(), &listed["entries"][0]["kind"]), (Some(2), &"directory".into()));
    assert_eq!(cell.done(&["fs", "tree"]), "/\n├── a/\n│   └── b/\n│       └── raw\n└── log\n".as_bytes());
    assert_eq!(cell.json(&["fs", "tree", "/a"])["entries"][1]["name"], "/a/b/raw");

    cell.done(&["fs", "mkdir", "/x/y"]);
    assert!(cell.fails(&["fs", "mkdir", "/x/y"], 1).contains("exists already"));
    assert!(cell.fails(&["fs", "rmdir", "/x"], 1).contains("not empty"));
    cell.done(&["fs", "rmdir", "/x/y"]);
    cell.done(&["fs", "mv", "/log", "/x/log"]);
    assert_eq!(cell.done(&["fs", "cat", "/x/log"]), b"one\ntwo\n");
    cell.done(&["fs", "rm", "/x/log"]);
    assert!(cell.fails(&["fs", "cat", "/x/log"], 3).contains("no such file"));
    cell.fails(&["fs", "rm", "/x/log"], 3);
    cell.fails(&["fs", "cat", "/x"], 1);
    cell.fails(&["fs", "cat", "/../etc"], 1);
    cell.fails(&["fs", "put", "/n", "/no/such/local/file"], 1);

    // One member that is known is enough.
    let members =
        format!("no-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789,{}", cell.members);
    cell.done(&["--cell", &members, "fs", "ls"]);
}

#[test]
fn what_was_done_is_told_in_json() {
    let cell = Cell::up();
    assert_eq!(cell.json(&["fs", "mkdir", "/d"]), json!({ "created": "/d" }));
    let written = cell.json(&["fs", "append", "/d/file", "/dev/null"]);
    assert_eq!(
        (&written["path"], &written["count"], &written["length"]),
        (&json!("/d/file"), &json!(0), &json!(0))
    );
    assert!(written["version"].is_u64());
    assert_eq!(cell.json(&["fs", "mv", "/d/file", "/moved"]), json!({ "from": "/d/file", "to": "/moved" }));
    assert_eq!(cell.json(&["fs", "rm", "/moved"]), json!({ "deleted": "/moved" }));
    assert_eq!(cell.json(&["fs", "rmdir", "/d"]), json!({ "deleted": "/d" }));
    let posted = cell.kumo_with(&["queue", "post", "q", "--format", "json"], b"word");
    let posted: Value = serde_json::from_slice(&posted.stdout).unwrap();
    assert_eq!(posted, json!({ "queue": "q", "length": 4 }));
    let id = cell.json(&["queue", "peek", "q"])["id"].clone();
    assert_eq!(cell.json(&["queue", "delete", "q", &id.to_string()]), json!({ "queue": "q", "deleted": id }));
    assert_status(&["post"], &cell.kumo_with(&["queue", "post", "q"], b"next"), 0);
    let taken = cell.json(&["queue", "wait", "q"]);
    assert_eq!((&taken["queue"], &taken["data"]), (&json!("q"), &json!("next")));
    assert_eq!(cell.json(&["cell", "transfer"]), json!({ "done": "transfer" }));
}

#[test]
fn names_do_not_command_the_terminal() {
    let cell = Cell::up();
    assert_status(&["put"], &cell.kumo_with(&["fs", "put", "/e/\u{1b}[31mred"], b"1"), 0);
    assert_eq!(cell.done(&["fs", "ls", "/e"]), b"\\u{1b}[31mred\n");
    for listing in [vec!["fs", "ls", "-l", "/e"], vec!["fs", "tree"], vec!["fs", "stat", "/e/\u{1b}[31mred"]]
    {
        let shown = cell.done(&listing);
        assert!(!shown.contains(&0x1b) && String::from_utf8(shown).unwrap().contains("\\u{1b}[31mred"));
    }
    assert_eq!(cell.json(&["fs", "ls", "/e"])["entries"][0]["name"], "\u{1b}[31mred");
    assert!(!cell.fails(&["fs", "cat", "/\u{1b}[31m"], 3).contains('\u{1b}'));
}

#[test]
fn a_write_under_a_condition_is_refused_when_it_does_not_hold() {
    let cell = Cell::up();
    assert_status(&["put"], &cell.kumo_with(&["fs", "put", "/new", "--if-version", "0"], b"1"), 0);
    assert_status(&["put"], &cell.kumo_with(&["fs", "put", "/new", "--if-version", "0"], b"2"), 1);
    let version = cell.json(&["fs", "stat", "/new"])["version"].to_string();
    assert_status(&["put"], &cell.kumo_with(&["fs", "put", "/new", "--if-version", &version], b"3"), 0);
    assert_eq!(cell.done(&["fs", "cat", "/new"]), b"3");

    let inside = r#"echo in | "$0" fs put /fenced --fence door=$KUMO_LOCK_NUMBER; echo $KUMO_LOCK_NUMBER"#;
    let number = cell.done(&["lock", "door", "--", "sh", "-c", inside, support::KUMO]);
    assert_eq!(cell.done(&["fs", "cat", "/fenced"]), b"in\n");
    let fence = format!("door={}", String::from_utf8(number).unwrap().trim());
    assert_status(&["fence"], &cell.kumo_with(&["fs", "put", "/fenced", "--fence", &fence], b"late"), 1);
    assert_eq!(cell.done(&["fs", "cat", "/fenced"]), b"in\n");
    assert_eq!(cell.kumo(&["fs", "put", "/fenced", "--fence", "nonsense"]).status.code(), Some(2));
}

#[test]
fn large_files_travel_whole_and_larger_ones_are_refused() {
    let cell = Cell::up();
    let folder = std::env::temp_dir().join(format!("kumo-large-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (file, beyond) = (folder.join("file"), folder.join("beyond"));
    let bytes: Vec<u8> = (0..10 * 1024 * 1024u32).map(|index| ((index * 7) >> 3) as u8).collect();
    std::fs::write(&file, &bytes).unwrap();
    std::fs::File::create(&beyond).unwrap().set_len(pfs::WRITE_BYTES_MAX + 1).unwrap();
    cell.done(&["fs", "put", "/large", file.to_str().unwrap()]);
    // Three pieces, put together under one version.
    assert!(cell.done(&["fs", "cat", "/large"]) == bytes);
    assert!(cell.fails(&["fs", "put", "/large", beyond.to_str().unwrap()], 1).contains("limit of one write"));
    assert_eq!(cell.json(&["fs", "stat", "/large"])["length"], bytes.len());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_directory_of_several_pages_is_listed_whole() {
    let cell = Cell::up();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let count = pfs::ENTRIES_MAX + 5;
    runtime.block_on(async {
        let session = pfs::Session::open(&pfs::Options::new(cell.addresses())).await.unwrap();
        // More calls at once than a session carries: the others wait in line.
        let calls = (0..count).map(|index| {
            let session = session.clone();
            tokio::spawn(async move { session.put(&format!("/many/{index:05}"), "").await })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.unwrap().unwrap();
        }
    });
    let listed = cell.json(&["fs", "ls", "/many"]);
    assert_eq!(listed["total"], count);
    assert_eq!(listed["entries"][count as usize - 1]["name"], format!("{:05}", count - 1));
}
