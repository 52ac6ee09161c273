//! Detects what changes which programs run on a line, or what they obey: variables set for the commands that follow.
//! Pure.
//!
//! `PATH=.:$PATH; ls` runs another `ls`, `HOME=/x; git status` uses another configuration. No list of such variables
//! can be complete; by convention they are uppercase, and lowercase variables belong to the shell. So a line that
//! sets a variable with an uppercase letter, or one of the few lowercase ones that programs read, is unknown from
//! there on. A variable set for a single command (`A=1 ls`) is part of that command's words, which a rule must name.

use tree_sitter::Node;

/// Suffix of the lowercase variables that programs read.
const LOWERCASE_SUFFIX: &str = "_proxy";

/// Builtins that set the variables named by their arguments.
const VARIABLE_SETTERS: [&str; 13] = [
    "export",
    "declare",
    "typeset",
    "local",
    "readonly",
    "unset",
    "read",
    "mapfile",
    "readarray",
    "getopts",
    "let",
    "printf",
    "wait",
];

/// Builtins that change what command names mean, or make bash run more than their words show.
const LOOKUP_BUILTINS: [&str; 5] = ["hash", "enable", "bind", "compgen", "complete"];

/// Builtins that look for array indices in their arguments, which bash evaluates.
const INDEX_EVALUATORS: [&str; 12] = [
    "test", "[", "[[", "let", "read", "printf", "unset", "declare", "typeset", "local", "export", "readonly",
];

/// Whether programs may obey the variable.
pub(super) fn is_program_variable(name: &str) -> bool {
    name.bytes().any(|b| b.is_ascii_uppercase()) || name.ends_with(LOWERCASE_SUFFIX)
}

/// Whether a node sets such a variable for the commands that follow.
pub(super) fn sets_program_variable(node: Node<'_>, line: &str) -> bool {
    let text = |node: Node<'_>| line.get(node.byte_range()).unwrap_or_default();
    let named = |field: &str| node.child_by_field_name(field).map(text);
    match node.kind() {
        "variable_assignment" => {
            let name = named("name").unwrap_or_default();
            let name = name.split('[').next().unwrap_or_default();
            // In front of a command it applies to that command only and is among its words.
            let is_for_one = node.parent().is_some_and(|parent| parent.kind() == "command");
            !is_for_one && is_program_variable(name)
        }
        "for_statement" | "select_statement" => named("variable").is_some_and(is_program_variable),
        // `${A:=b}` and `((A = 1))`.
        "expansion" => {
            let inner = text(node).trim_start_matches("${");
            let end = inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inner.len());
            let (name, rest) = inner.split_at(end);
            (rest.starts_with('=') || rest.starts_with(":=")) && is_program_variable(name)
        }
        "binary_expression" | "unary_expression" | "postfix_expression" => {
            let signs = text(node);
            let assigns = signs.contains('=') || signs.contains("++") || signs.contains("--");
            let is_arithmetic = std::iter::successors(node.parent(), |node| node.parent())
                .find(|node| !node.kind().ends_with("_expression"))
                .is_some_and(|node| node.kind() != "test_command");
            assigns && is_arithmetic && is_program_variable(signs)
        }
        _ => false,
    }
}

/// Whether a command changes the meaning of others, as far as its words show.
pub(super) fn changes_command_lookup(words: &[String]) -> bool {
    let Some((program, args)) = words.split_first() else { return false };
    let program = program.as_str();
    let names_obeyed = |arg: &String| {
        let name = arg.split(['=', '[', '+']).next().unwrap_or_default();
        let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        is_name && !name.is_empty() && is_program_variable(name)
    };
    // `printf` sets a variable only with `-v`.
    let sets = VARIABLE_SETTERS.contains(&program)
        && (program != "printf" || args.iter().any(|arg| arg.starts_with("-v")));
    let with_callback =
        matches!(program, "mapfile" | "readarray") && args.iter().any(|arg| arg.starts_with("-C"));
    (sets && args.iter().any(names_obeyed)) || LOOKUP_BUILTINS.contains(&program) || with_callback
}

/// Whether a builtin gets an index containing a command, which bash evaluates.
pub(super) fn evaluates_array_index(words: &[String]) -> bool {
    let is_evaluator = words.first().is_some_and(|program| INDEX_EVALUATORS.contains(&program.as_str()));
    is_evaluator
        && words[1..].iter().any(|word| word.contains('[') && (word.contains("$(") || word.contains('`')))
}
