//! docs/library.md shows this example's code as it is.

use std::path::Path;

#[test]
fn every_line_of_code_in_the_tutorial_is_code_of_the_example() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(here.join(path)).unwrap();
    let code = ["Cargo.toml", "src/counters.rs", "src/client.rs", "src/main.rs"].map(read);
    let document = read("../../docs/library.md");
    let blocks: Vec<&str> = document
        .split("\n```")
        .skip(1)
        .step_by(2)
        .filter_map(|block| block.strip_prefix("rust\n").or_else(|| block.strip_prefix("toml\n")))
        .collect();
    assert!(blocks.len() >= 6, "the tutorial shows code");
    for block in blocks {
        assert!(code.iter().any(|source| source.contains(block)), "not in the example:\n{block}");
    }
}
