//! Runs the edit engine over cases on stdin, for scoring it against a corpus.

fn main() -> std::io::Result<()> {
    docket_edit::edit_jsonl(std::io::stdin().lock(), std::io::stdout().lock())
}
