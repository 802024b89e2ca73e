//! Tests of rules for all commands.

use clap::CommandFactory;

use super::Args;

/// Commands without `-o`, with the reason. Every command that prints data has `-o json`.
const PRINT_NOTHING: [(&str, &str); 35] = [
    ("agent", "runs until it is stopped, and prints messages"),
    ("array backup", "writes a file"),
    ("array copy", "says what was done, on standard error"),
    ("array restore", "says what was done, on standard error"),
    ("bench figures", "prints Markdown, for the book"),
    ("completion", "prints a script, for a shell"),
    ("config schema", "prints a schema, which is JSON"),
    ("device accept", "says what was done, on standard error"),
    ("device direct", "says what was done, on standard error"),
    ("device remove", "says what was done, on standard error"),
    ("device replace", "says what was done, on standard error"),
    ("export facts", "prints a scenario, for terrace sim"),
    ("init", "writes a file"),
    ("man", "writes files"),
    ("reproduce", "calls another program, which has it"),
    ("tier add", "says what was done, on standard error"),
    ("tier limit", "says what was done, on standard error"),
    ("tier remove", "says what was done, on standard error"),
    ("trace convert", "writes a file"),
    ("trace generate", "writes a file"),
    ("trace record", "writes a file"),
    ("trace sample", "writes a file"),
    ("volume cancel", "says what was done, on standard error"),
    ("volume class", "says what was done, on standard error"),
    ("volume create", "says what was done, on standard error"),
    ("volume delete", "says what was done, on standard error"),
    ("volume mirror", "says what was done, on standard error"),
    ("volume move", "says what was done, on standard error"),
    ("volume rename", "says what was done, on standard error"),
    ("volume resize", "says what was done, on standard error"),
    ("volume set", "says what was done, on standard error"),
    (
        "volume snapshot create",
        "says what was done, on standard error",
    ),
    (
        "volume snapshot delete",
        "says what was done, on standard error",
    ),
    (
        "volume snapshot restore",
        "says what was done, on standard error",
    ),
    ("volume xml", "prints XML, for a libvirt domain"),
];

fn leaves(command: &clap::Command, path: &str, all: &mut Vec<(String, clap::Command)>) {
    let subcommands: Vec<_> = command.get_subcommands().collect();
    if subcommands.is_empty() {
        all.push((path.into(), command.clone()));
    }
    for sub in subcommands {
        let name = sub.get_name();
        let path = match path {
            "" => name.to_owned(),
            path => format!("{path} {name}"),
        };
        leaves(sub, &path, all);
    }
}

#[test]
fn commands_that_print_data_support_json() {
    let mut all = vec![];
    leaves(&Args::command(), "", &mut all);
    assert!(all.len() > 50, "{} commands", all.len());
    for (path, command) in &all {
        let prints_nothing = PRINT_NOTHING.iter().any(|(name, _)| name == path);
        let output = command
            .get_arguments()
            .find(|a| a.get_short() == Some('o') && a.get_long() == Some("output"));
        let json = output.is_some_and(|output| {
            let values = output.get_possible_values();
            values.iter().any(|v| v.get_name() == "json")
        });
        assert_ne!(
            json, prints_nothing,
            "terrace {path}: a command has -o json, or is listed as one that prints no data, not both and not neither"
        );
    }
    for (name, _) in &PRINT_NOTHING {
        assert!(all.iter().any(|(path, _)| path == name), "{name} is gone");
    }
}

#[test]
fn command_line_definition_has_no_conflicts() {
    Args::command().debug_assert();
}

fn helps(command: &clap::Command, path: &str, text: &mut String) {
    use std::fmt::Write;
    let mut own = command.clone().bin_name(path).term_width(100);
    writeln!(text, "## {path}\n{}", own.render_long_help()).expect("to a string");
    for sub in command.get_subcommands() {
        helps(sub, &format!("{path} {}", sub.get_name()), text);
    }
}

/// Compares all help texts with the reviewed file. `INSTA_UPDATE=always` rewrites the file.
#[test]
fn help_of_every_command_is_as_reviewed() {
    let mut text = String::new();
    helps(&Args::command(), "terrace", &mut text);
    insta::assert_snapshot!("help", text);
}
