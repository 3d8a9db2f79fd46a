//! [`Page`]: the commands of a Markdown page, and what it says that they print.

use std::path::Path;

/// The fenced blocks of a page that are for a shell, in order.
pub struct Page {
    pub blocks: Vec<Block>,
}

/// What stands between two fences.
#[derive(Debug)]
pub struct Block {
    /// `sh`: lines to type; `console`: a transcript.
    pub kind: String,
    lines: Vec<String>,
}

/// A command of a transcript, and the lines below it.
#[derive(Debug)]
pub struct Shown {
    pub command: String,
    pub output: Vec<String>,
}

impl Page {
    pub fn read(name: &str) -> Page {
        let text =
            std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)).unwrap();
        let mut blocks = Vec::new();
        let mut open: Option<Block> = None;
        for line in text.lines() {
            match (line.strip_prefix("```"), open.take()) {
                (Some(kind), None) => open = Some(Block { kind: kind.to_owned(), lines: Vec::new() }),
                (Some(_), Some(block)) => blocks.push(block),
                (None, Some(mut block)) => {
                    block.lines.push(line.to_owned());
                    open = Some(block);
                }
                (None, None) => {}
            }
        }
        blocks.retain(|block| block.kind == "sh" || block.kind == "console");
        Page { blocks }
    }
}

impl Block {
    /// What is typed, without remarks.
    pub fn commands(&self) -> Vec<String> {
        match self.kind.as_str() {
            "console" => self.shown().into_iter().map(|shown| shown.command).collect(),
            _lines => self.lines.iter().map(|line| without_remark(line)).collect(),
        }
    }

    /// A transcript, command by command.
    pub fn shown(&self) -> Vec<Shown> {
        let mut all: Vec<Shown> = Vec::new();
        for line in &self.lines {
            match line.strip_prefix("$ ") {
                Some(command) => all.push(Shown { command: without_remark(command), output: Vec::new() }),
                None => all.last_mut().expect("a transcript begins with a command").output.push(line.clone()),
            }
        }
        all
    }
}

fn without_remark(line: &str) -> String {
    line.split(" # ").next().unwrap_or_default().trim_end().to_owned()
}
