//! What the README and the tutorial show is what happens: their commands are run as they are printed, on the ports and addresses they name,
//! in a network namespace of the test's own.

#[allow(dead_code)] // The tests that cut links use the rest.
#[path = "../chaos/namespaces.rs"]
mod namespaces;
mod page;
mod shell;
#[path = "../support/mod.rs"]
mod support;

use page::{Page, Shown};
use rustix::process::Signal;
use shell::Shell;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use support::{ends, is_alive, signal};

#[test]
fn the_commands_of_the_readme_do_what_it_shows() {
    inside("the_commands_of_the_readme_do_what_it_shows", || {
        let page = Page::read("README.md");
        let [first, screen, machines, lines, store] = &page.blocks[..] else {
            panic!("a block was added to README.md: run it here");
        };
        runs_the_first_screen(&first.commands(), &screen.shown());
        runs_a_cell_on_three_machines(&machines.commands());
        runs_a_store(&lines.commands(), &store.shown());
    });
}

#[test]
fn the_tutorial_is_what_happens() {
    inside("the_tutorial_is_what_happens", || {
        let blocks = Page::read("docs/tutorial.md").blocks;
        let mut transcript = blocks.iter().flat_map(|block| block.shown());
        let mut shell = Shell::open("tutorial");
        shell.done("kumo links . && export PATH=$PWD:$PATH");
        let mut up = Up::start(&shell, &transcript.next().expect("it begins with kumo up"));
        let followed = transcript.map(|shown| up.follow(&mut shell, &shown)).count();
        assert!(followed >= 15, "{followed} commands");
        up.end();
    });
}

/// Runs the rest of a test in namespaces of its own, where every port is free.
fn inside(test: &str, run: impl FnOnce()) {
    if namespaces::inside() {
        run();
        println!("{REPORT}");
        return;
    }
    match namespaces::run_inside(test) {
        Err(reason) => println!("skipped: no network namespace can be made here ({reason})"),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            print!("{text}");
            assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
            assert!(text.contains(REPORT), "the test inside ran: {text}");
        }
    }
}

#[test]
fn the_japanese_readme_shows_the_same_commands() {
    let blocks = |name| Page::read(name).blocks;
    let (english, japanese) = (blocks("README.md"), blocks("README.ja.md"));
    assert_eq!(english.len(), japanese.len());
    for (one, other) in english.iter().zip(&japanese) {
        assert_eq!((&one.kind, one.commands()), (&other.kind, other.commands()));
        if one.kind == "console" {
            let outputs =
                |block: &page::Block| block.shown().into_iter().map(|shown| shown.output).collect::<Vec<_>>();
            assert_eq!(outputs(one), outputs(other));
        }
    }
}

/// `kumo up`, everything it says to try, and a command with a cluster of its own.
fn runs_the_first_screen(first: &[String], screen: &[Shown]) {
    let [up, check] = first else { panic!("{first:?}") };
    let [shown] = screen else { panic!("{screen:?}") };
    // Built already, and this test is part of ./check.
    assert_eq!(
        (up.replace("cargo run --release --", "kumo"), check.as_str()),
        (shown.command.clone(), "./check")
    );
    assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join("../check").is_file());
    let mut shell = Shell::open("up");
    let mut up = Up::start(&shell, shown);
    let begin = up.said.iter().position(|line| line == "In another shell:").expect("there are things to try");
    let tries = up.said[begin + 1..].iter().take_while(|line| !line.is_empty());
    let printed: Vec<String> = tries.map(|line| shell.done(line.trim())).collect();
    let [stored, _export, colour, stat, again] = &printed[..] else { panic!("{printed:?}") };
    assert_eq!(stored, "STORED\nVALUE greeting 0 5\nhello\nEND\n");
    assert_eq!(colour, "blue\n");
    assert!(stat.contains("127.0.0.1:19800 (fault)") && stat.contains("127.0.0.1:19802 (active)"), "{stat}");
    assert_eq!(again, "VALUE greeting 0 5\nhello\nEND\n", "a server was killed before");

    // Beside the first one, so on other ports.
    assert_eq!(shell.run("kumo up -- true").0, 0);
    let own =
        r#"kumo up -- sh -c 'test "$KUMO_GATEWAY" = "$MEMCACHED_SERVERS" && test "$KUMO_CELL" && exit 9'"#;
    assert_eq!(shell.run(own).0, 9);
    up.end();
}

fn runs_a_cell_on_three_machines(commands: &[String]) {
    let (status, replicas) = commands.split_last().expect("there are commands");
    let mut shell = Shell::open("cell");
    for (number, line) in replicas.iter().enumerate() {
        let host = format!("10.0.0.{}", number + 1);
        assert!(line.starts_with(&format!("kumo-cell -l {host}:")), "{line}");
        let added = Command::new("ip").args(["addr", "add", &format!("{host}/32"), "dev", "lo"]).status();
        assert!(added.unwrap().success());
    }
    shell.done("kumo links . && export PATH=$PWD:$PATH");
    replicas.iter().for_each(|line| shell.start(line));
    let told = shell.until(status, |text| text.matches("voting").count() == replicas.len());
    assert!(told.contains("master 10.0.0."), "{told}");
}

fn runs_a_store(commands: &[String], transcript: &[Shown]) {
    let mut shell = Shell::open("store");
    let is_process = |line: &str| PROCESSES.iter().any(|name| line.starts_with(&format!("{name} ")));
    let processes = commands.iter().filter(|line| is_process(line)).count();
    assert_eq!(processes, 4, "{commands:?}");
    for line in commands {
        if is_process(line) {
            shell.start(line);
        } else {
            if line.contains("attach") {
                // A reader has looked whether the processes are up; they are when this is told.
                shell.until("kumoctl localhost stat", |text| text.matches("127.0.0.1:1980").count() == 2);
            }
            shell.done(line);
        }
    }
    let [stat, stored] = transcript else { panic!("{transcript:?}") };
    let wanted = shapes(&stat.output);
    shell.until(&stat.command, |text| shapes(&text.lines().map(str::to_owned).collect::<Vec<_>>()) == wanted);
    let wanted = stored.output.join("\n") + "\n";
    shell.until(&stored.command, |text| text == wanted);
}

/// A cluster of `kumo up`, which said what the page shows.
struct Up {
    process: Child,
    said: Vec<String>,
    /// Process ids of the page, and those of now.
    ids: Vec<(String, String)>,
}

impl Up {
    fn start(shell: &Shell, shown: &Shown) -> Up {
        let mut process = shell::command(shell.folder())
            .args(["-c", &format!("exec {}", shown.command)])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = Vec::new();
        for line in BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap) {
            let is_last = line.starts_with("Ctrl-C");
            said.push(line);
            if is_last {
                break;
            }
        }
        assert_eq!(shapes(&said), shapes(&shown.output));
        let ids = shown
            .output
            .iter()
            .flat_map(|line| id(line))
            .zip(said.iter().flat_map(|line| id(line)))
            .collect();
        Up { process, said, ids }
    }

    /// Types a command of the page, for the processes of now, until it prints what the page shows.
    fn follow(&self, shell: &mut Shell, shown: &Shown) {
        let now = |line: String, (then, now): &(String, String)| line.replace(then, now);
        let command = self.ids.iter().fold(shown.command.clone(), now);
        let wanted = shapes(&shown.output);
        shell.until(&command, |text| shapes(&text.lines().map(str::to_owned).collect::<Vec<_>>()) == wanted);
    }

    /// As Ctrl-C does.
    fn end(&mut self) {
        signal(self.process.id(), Signal::INT);
        assert!(ends(&mut self.process).success());
        assert!(!is_alive(self.process.id()));
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            signal(self.process.id(), Signal::TERM);
            let _ = self.process.wait();
        }
    }
}

/// The process id that a line tells.
fn id(line: &str) -> Option<String> {
    line.split_whitespace().skip_while(|word| *word != "pid").nth(1).map(str::to_owned)
}

/// Lines without what differs from run to run: numbers, names that are drawn, times; and how far a replace was when
/// somebody looked. Where a master died, either of the others may be the next.
fn shapes(lines: &[String]) -> Vec<String> {
    lines.iter().filter(|line| !line.starts_with("replace ")).map(|line| shape(line)).collect()
}

fn shape(line: &str) -> String {
    if let Some((_, number)) = line.split_once(" clock ") {
        assert!(number.parse::<u64>().is_ok(), "{line}");
        return "# clock #".to_owned();
    }
    let mut before = "";
    let words = line.split_whitespace().map(|word| {
        let is_number = word.trim_end_matches(';').parse::<u64>().is_ok();
        let is_drawn = word.len() > 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_next = before == "master";
        before = word;
        if is_number || is_drawn || is_next { "#" } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// What does not end by itself.
const PROCESSES: [&str; 4] = ["kumo-cell", "kumo-manager", "kumo-server", "kumo-gateway"];

/// Said by the test inside the namespace.
const REPORT: &str = "the commands ran as they are shown";
