//! Configuration on the real binary: who wins, what is said of it, and that processes run by it.

mod support;

use rustix::process::Signal;
use serde_json::Value;
use std::io::BufReader;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use support::{KUMO, assert_status, ends, free_addresses, next_line, signal};

/// A configuration file of a test's own, removed with it.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let path = std::env::temp_dir().join(format!("kumo-config-{name}-{}.toml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        File(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn kumo(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(KUMO)
        .args(arguments)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn shown(arguments: &[&str], environment: &[(&str, &str)]) -> Value {
    let output = kumo(arguments, environment);
    assert_status(arguments, &output, 0);
    serde_json::from_slice(&output.stdout).expect("one line of JSON")
}

#[test]
fn show_tells_where_each_value_came_from() {
    let file = File::new(
        "show",
        "[server]\nlisten = '10.0.0.9'\nsync = 'always'\nmin-copies = 2\npartner = ['a', 'b']\n",
    );
    let environment =
        [("KUMO_SERVER_SYNC", "none"), ("KUMO_SERVER_MAX_VALUE", ""), ("KUMO_CONFIG", file.path())];
    let arguments = ["config", "show", "server", "-l", "10.0.0.1", "-gN", "7", "--format", "json"];
    let all = shown(&arguments, &environment);
    for (key, value, from, name) in [
        ("listen", "10.0.0.1", "flag", None),
        ("garbage-min-time", "7", "flag", None),
        ("sync", "none", "environment", Some("KUMO_SERVER_SYNC")),
        ("min-copies", "2", "file", Some(file.path())),
        ("max-value", "1048576", "default", None),
    ] {
        let one = &all["server"][key];
        assert_eq!(
            (one["value"].as_str(), one["from"].as_str(), one["name"].as_str()),
            (Some(value), Some(from), name),
            "{key}"
        );
    }
    assert_eq!(all["server"]["partner"]["value"], serde_json::json!(["a", "b"]));
    assert_eq!(
        (&all["server"]["store"]["value"], &all["server"]["store"]["from"]),
        (&Value::Null, &"unset".into())
    );

    // Without a role: all of them. As text, what is missing is told.
    let text = String::from_utf8(kumo(&["config", "show", "--config", file.path()], &[]).stdout).unwrap();
    for heading in ["[manager]", "[server]", "[gateway]", "[cell]", "[up]"] {
        assert!(text.contains(heading), "{text}");
    }
    let manager = text.lines().find(|line| line.starts_with("manager ")).unwrap();
    assert!(manager.ends_with("unset, but needed"), "{manager}");
}

#[test]
fn what_is_wrong_is_one_line() {
    let listen = free_addresses(1)[0].to_string();
    for (text, status, part) in [
        (
            "[manager]\nlisten = 'x'\nmemroy = true\n",
            2,
            "unknown key memroy in [manager]; did you mean memory?",
        ),
        ("[gateway]\nget-retries = 1\n", 2, "unknown key get-retries in [gateway]; did you mean get-retry?"),
        ("[manager\n", 2, "line 1"),
        ("[manager]\nunit = 'soon'\n", 2, "unit: invalid value 'soon'"),
    ] {
        let file = File::new("wrong", text);
        let arguments = ["manager", "-l", &listen, "--memory", "--config", file.path()];
        let output = kumo(&arguments, &[]);
        assert_status(&arguments, &output, status);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(part) && error.lines().count() == 1, "{error}");
    }
    assert_status(&["no file"], &kumo(&["config", "show", "--config", "./no-such-file"], &[]), 1);
    assert_status(&["no role"], &kumo(&["config", "show", "sever"], &[]), 2);
    let output = kumo(&["server"], &[("KUMO_SERVER_LISTN", "x")]);
    assert_status(&["variable"], &output, 2);
    assert!(String::from_utf8(output.stderr).unwrap().contains("did you mean KUMO_SERVER_LISTEN?"));
}

#[test]
fn secrets_are_not_shown() {
    let output = kumo(&["config", "show"], &[("KUMO_HTTP_TOKEN", "correct-horse-battery-staple-0123456789")]);
    assert_status(&["show"], &output, 0);
    let all = [output.stdout, output.stderr].concat();
    assert!(!String::from_utf8(all).unwrap().contains("correct-horse"));
}

#[test]
fn processes_run_by_a_file_and_the_environment() {
    for (name, section, more) in
        [("kumo-manager", "manager", "memory = true\n"), ("kumo-cell", "cell", "log-level = 'error'\n")]
    {
        let addresses = free_addresses(2);
        let (listen, control) = (addresses[0].to_string(), addresses[1].port());
        let control = if section == "manager" { format!("control = {control}\n") } else { String::new() };
        let file = File::new(
            section,
            &format!("[{section}]\nlisten = '127.0.0.1:1'\nhttp = 'off'\n{control}{more}"),
        );
        let variable = format!("KUMO_{}_LISTEN", section.to_uppercase());
        let mut process = Command::new(KUMO)
            .arg0(name)
            .env("KUMO_CONFIG", file.path())
            .env(variable, &listen)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let waited = kumo(&["--cell", &listen, "cell", "wait", "--voting"], &[]);
        signal(process.id(), Signal::TERM);
        assert!(ends(&mut process).success(), "{name}");
        assert_status(&[name], &waited, 0);
    }
}

#[test]
fn up_is_configured_too() {
    let file = File::new("up", "[up]\nservers = 1\nmanagers = 3\ngateways = 2\n[server]\nmin-copies = 3\n");
    let script = "echo $KUMO_CELL $KUMO_GATEWAY";
    let arguments = ["up", "--config", file.path(), "--", "sh", "-c", script];
    let output = kumo(&arguments, &[("KUMO_UP_MANAGERS", "1"), ("KUMO_SERVER_LISTEN", "nowhere")]);
    assert_status(&arguments, &output, 0);
    let text = String::from_utf8(output.stdout).unwrap();
    let counts: Vec<usize> = text.split_whitespace().map(|list| list.split(',').count()).collect();
    assert_eq!(counts, [1, 2], "{text}");
}

#[test]
fn up_hands_a_file_on_but_for_what_is_its_own() {
    let text = "[manager]\nreplace-delay = 9\n[server]\nlisten = 'nowhere'\nstore = '/nowhere'\nmax-value = 4096\n\
                [gateway]\nget-retry = 7\nverbose = 3\n";
    let file = File::new("handed-on", text);
    let mut up = Command::new(KUMO)
        .args(["up", "--servers", "1", "--managers", "1", "--format", "json", "--config", file.path()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let ready = next_line(&mut BufReader::new(up.stdout.take().unwrap()));
    let of = |role: &str| {
        let ready: Value = serde_json::from_str(&ready).expect("kumo up says when the cluster is ready");
        let pid = ready[role][0]["pid"].as_u64().unwrap();
        String::from_utf8(std::fs::read(format!("/proc/{pid}/cmdline")).unwrap()).unwrap()
    };
    let [managers, servers, gateways] = ["managers", "servers", "gateways"].map(of);
    signal(up.id(), Signal::TERM);
    assert!(ends(&mut up).success());
    assert!(managers.contains("--replace-delay=9"), "{managers}");
    assert!(servers.contains("--max-value=4096") && !servers.contains("nowhere"), "{servers}");
    assert!(gateways.contains("--get-retry=7") && !gateways.contains("--verbose"), "{gateways}");
}
