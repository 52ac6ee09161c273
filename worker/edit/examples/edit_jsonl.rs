//! Runs the edit engine over JSONL cases from stdin, to score it against a corpus.

fn main() -> std::io::Result<()> {
    docket_edit::edit_jsonl(std::io::stdin().lock(), std::io::stdout().lock())
}
