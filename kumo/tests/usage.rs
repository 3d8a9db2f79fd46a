//! What needs no cell: help, names, completions, bad arguments, an unreachable cell.

mod support;

use std::fs::File;
use std::io::BufReader;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::{KUMO, assert_status, free_addresses, next_line};

/// A name that no resolver knows, and that none is asked for: one of its parts is too long.
const UNKNOWN: &str = "nosuch-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789";

fn kumo(arguments: &[&str]) -> Output {
    Command::new(KUMO).args(arguments).output().unwrap()
}

#[test]
fn help_and_version_are_there_for_every_name() {
    for arguments in
        [vec!["--help"], vec!["--version"], vec!["cell", "--help"], vec!["bench", "cell", "--help"]]
    {
        assert_status(&arguments, &kumo(&arguments), 0);
    }
    let output = Command::new(KUMO).arg0("kumo-cell").arg("--help").output().unwrap();
    assert_status(&["kumo-cell"], &output, 0);
    assert!(String::from_utf8(output.stdout).unwrap().contains("One replica of a cell"));
}

/// A file that took the place of a closed stream would get what is printed, or be read as input.
#[test]
fn closed_streams_are_no_files_of_ours() {
    let closed = |arguments: &[&str]| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec \"$@\" <&- >&- 2>&-", "sh", KUMO]).args(arguments);
        shell
    };
    assert_eq!(closed(&["--help"]).status().unwrap().code(), Some(0));
    assert_eq!(closed(&["no-such-command"]).status().unwrap().code(), Some(2));
    let store = std::env::temp_dir().join(format!("kumo-closed-{}", std::process::id()));
    let addresses: Vec<_> = free_addresses(3);
    let (listen, manager) = (addresses[0].to_string(), addresses[1].to_string());
    let stream = addresses[2].port().to_string();
    let path = store.to_str().unwrap();
    let arguments =
        ["server", "-v", "-l", &listen, "-m", &manager, "-L", &stream, "-s", path, "--http", "off"];
    let mut server = closed(&arguments).spawn().unwrap();
    let limit = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(addresses[0]).is_err() {
        assert!(server.try_wait().unwrap().is_none() && Instant::now() < limit, "the server listens");
        std::thread::park_timeout(Duration::from_millis(20));
    }
    for stream in 0..3 {
        let file = std::fs::read_link(format!("/proc/{}/fd/{stream}", server.id())).unwrap();
        assert_eq!(file, Path::new("/dev/null"), "stream {stream}");
    }
    server.kill().unwrap();
    server.wait().unwrap();
    std::fs::remove_dir_all(&store).unwrap();
}

#[test]
fn bad_arguments_are_status_2() {
    for arguments in [
        vec![],
        vec!["no-such-command"],
        vec!["fs", "cat"],
        vec!["lock", "a", "--try", "--timeout", "1", "--", "true"],
        vec!["queue", "delete", "q", "not-a-number"],
        vec!["--cell", ",", "fs", "ls"],
        vec!["--cell", "127.0.0.1:99999", "fs", "ls"],
        vec!["cell", "-l", "0.0.0.0:19700"],
        vec!["cell", "-l", "127.0.0.1:0"],
        vec!["cell", "-l", "127.0.0.1:1", "-u", "1"],
        vec!["cell", "-l", "127.0.0.1:1", "-p", "127.0.0.1:1"],
        vec!["cell", "-l", "127.0.0.1:1", "--extension"],
        [&["cell", "-l", "127.0.0.1:1"][..], &EIGHT_MEMBERS].concat(),
        [&["manager", "--memory", "-l", "127.0.0.1:1"][..], &EIGHT_MEMBERS].concat(),
        vec!["bench", "cell", "--op", "nothing"],
        vec!["--cell", "no name", "fs", "ls"],
        vec!["ctl", "localhost:99999", "stat"],
        vec!["gateway", "-m", "localhost", "-t", "99999"],
        vec!["gateway", "-m", "99999", "-t", "11211"],
        vec!["gateway", "-m", "localhost", "-t", "0", "--http", "99999"],
        vec!["server", "-m", "localhost", "-l", "99999"],
        vec!["manager", "-l", "99999"],
        vec!["ctl", "99999", "stat"],
        vec!["hash", "dump"],
        vec!["hash", "dump", "key"],
        vec!["--patience", "0", "fs", "ls"],
        vec!["up", "--"],
        vec!["watch", "/x", "--"],
        vec!["server", "-m", "localhost", "-l", "127.0.0.1:19855", "-L", "19855"],
        vec!["manager", "-l", "127.0.0.1:19855", "-c", "19855"],
    ] {
        assert_status(&arguments, &kumo(&arguments), 2);
    }
    // What is wrong is said, whatever else is set.
    let negative = kumo(&["--patience", "-1", "fs", "ls"]);
    assert_status(&["-1"], &negative, 2);
    assert!(String::from_utf8(negative.stderr).unwrap().contains("not a time to wait: -1"));
    let missing = Command::new(KUMO).args(["fs", "cat"]).env("KUMO_CELL", "127.0.0.1:1").output().unwrap();
    assert!(!String::from_utf8(missing.stderr).unwrap().contains("--cell"));
}

#[test]
fn a_name_that_nobody_knows_is_unreachable() {
    for arguments in [
        vec!["--cell", UNKNOWN, "fs", "ls"],
        vec!["ctl", UNKNOWN, "stat"],
        vec!["server", "-m", UNKNOWN, "-l", "127.0.0.1:19855"],
    ] {
        assert_status(&arguments, &kumo(&arguments), 4);
    }
}

#[test]
fn a_line_that_cannot_be_written_does_not_change_the_status() {
    let nobody = free_addresses(1)[0].to_string();
    let cases = [
        (vec!["--cell", &nobody, "--patience", "0.3", "fs", "cat", "/x"], 4),
        (vec!["ctl", &nobody, "stat"], 4),
        (vec!["fs", "cat"], 2),
        (vec!["ctl", "localhost", "nothing"], 2),
    ];
    for (arguments, status) in cases {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(KUMO).args(&arguments).stderr(full).output().unwrap();
        assert_status(&arguments, &output, status);
    }
}

#[test]
fn a_programs_options_are_its_own_however_it_is_called() {
    for program in ["manager", "ctl"] {
        let help = kumo(&["help", program]).stdout;
        assert_eq!(
            String::from_utf8(help),
            String::from_utf8(kumo(&[program, "--help"]).stdout),
            "{program}"
        );
    }
    let below = String::from_utf8(kumo(&["help", "ctl", "attach"]).stdout).unwrap();
    assert!(below.contains("--accept-data-loss") && !below.contains("--patience"), "{below}");
    let nobody = free_addresses(1)[0].to_string();
    let arguments = ["--format", "json", "ctl", &nobody, "stat"];
    assert_status(&arguments, &kumo(&arguments), 4);
    let arguments = ["--any", "ctl", &nobody, "stat"];
    assert_status(&arguments, &kumo(&arguments), 2);
}

#[test]
fn a_gateway_says_where_it_is_and_whom_it_does_not_reach() {
    let nobody = free_addresses(1)[0].to_string();
    let mut gateway = Command::new(KUMO)
        .args(["gateway", "-m", &nobody, "-t", "0", "--http", "off", "-o", "-", "--exit-on-stdin-eof"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(gateway.stdout.take().unwrap());
    let lines: Vec<String> = (0..3).map(|_| next_line(&mut said)).collect();
    assert!(
        lines.iter().any(|line| line.contains("memcached on a free port address=127.0.0.1:")),
        "{lines:?}"
    );
    let lost = format!("the manager is not reached manager={nobody}");
    assert!(lines.iter().any(|line| line.contains(&lost)), "{lines:?}");
    drop(gateway.stdin.take());
    assert!(gateway.wait().unwrap().success());
}

#[test]
fn a_cell_that_does_not_answer_is_status_4() {
    let nobody = free_addresses(1)[0].to_string();
    for command in
        [vec!["fs", "ls"], vec!["cell", "status"], vec!["session", "ls"], vec!["lock", "a", "--", "true"]]
    {
        let mut arguments = vec!["--cell", &nobody, "--patience", "0.3"];
        arguments.extend(command);
        let output = kumo(&arguments);
        assert_status(&arguments, &output, 4);
        assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 1);
    }
}

#[test]
fn links_manuals_and_completions_are_written() {
    let folder = std::env::temp_dir().join(format!("kumo-links-{}", std::process::id()));
    let name = folder.to_str().unwrap();
    // Twice: an older link is replaced.
    for _ in 0..2 {
        assert_status(&["links"], &kumo(&["links", name]), 0);
    }
    for called in ["kumo-cell", "kumo"] {
        let output = Command::new(folder.join(called)).arg("--version").output().unwrap();
        assert!(String::from_utf8(output.stdout).unwrap().starts_with(&format!("{called} ")));
    }
    let written = kumo(&["man", name]);
    assert_status(&["man"], &written, 0);
    assert!(String::from_utf8(written.stdout).unwrap().contains("/kumo-fs-put.1\n"));
    for page in ["kumo.1", "kumo-fs-put.1", "kumo-config-show.1"] {
        assert!(folder.join(page).exists(), "{page}");
    }
    let bash = String::from_utf8(kumo(&["completion", "bash"]).stdout).unwrap();
    let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let names: Vec<_> = entries.filter(|path| path.is_symlink()).collect();
    assert!(names.len() >= 10, "{names:?}");
    for path in names {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(folder.join(format!("{name}.1")).exists(), "no page of {name}");
        let completed =
            |line: &str| line.trim().starts_with("complete ") && line.ends_with(&format!(" {name}"));
        assert!(bash.lines().any(completed), "no completion of {name}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let output = kumo(&["completion", shell]);
        assert_status(&[shell], &output, 0);
        assert!(!output.stdout.is_empty());
        let script = folder.join(format!("completion.{shell}"));
        std::fs::write(&script, output.stdout).unwrap();
        accepts(Command::new(shell).arg("-n").arg(script));
    }
    for page in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
        if page.extension().is_some_and(|extension| extension == "1") {
            accepts(Command::new("groff").args(["-man", "-Kutf8", "-ww", "-z", "-Tutf8"]).arg(page));
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// As in `cp kumo /usr/bin && kumo links /usr/bin`.
#[test]
fn links_beside_the_binary_leave_it_as_it_is() {
    // Where a hard link to the binary can be made.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kumo-beside-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let folder = folder.canonicalize().unwrap();
    let (binary, other) = (folder.join("kumo"), folder.join("other"));
    std::fs::hard_link(KUMO, &binary).unwrap();
    let output = Command::new(&binary).arg("links").arg(&folder).output().unwrap();
    assert_status(&["links"], &output, 0);
    assert!(!binary.is_symlink());
    assert_eq!(std::fs::read_link(folder.join("kumoctl")).unwrap(), binary);
    // What somebody else has put there is not ours to replace.
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("kumo"), "another program").unwrap();
    let output = Command::new(&binary).arg("links").arg(&other).output().unwrap();
    assert_status(&["links"], &output, 1);
    assert_eq!(std::fs::read_to_string(other.join("kumo")).unwrap(), "another program");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A program of others, where it is installed, finds nothing wrong.
fn accepts(command: &mut Command) {
    match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("skipped: there is no {} here", command.get_program().display());
        }
        Err(error) => panic!("{command:?}: {error}"),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.is_empty(), "{command:?}: {said}");
        }
    }
}

#[test]
fn a_reader_that_has_enough_is_no_error_message() {
    let script = format!("'{KUMO}' completion bash | head -c 1 >/dev/null; '{KUMO}' --help >/dev/null");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_status(&["pipe"], &output, 0);
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// One more than can vote; one of them is meant to be the one that is started.
const EIGHT_MEMBERS: [&str; 16] = [
    "-p",
    "127.0.0.1:1",
    "-p",
    "127.0.0.1:2",
    "-p",
    "127.0.0.1:3",
    "-p",
    "127.0.0.1:4",
    "-p",
    "127.0.0.1:5",
    "-p",
    "127.0.0.1:6",
    "-p",
    "127.0.0.1:7",
    "-p",
    "127.0.0.1:8",
];
