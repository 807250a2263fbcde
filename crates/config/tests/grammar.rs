//! The grammar of libconfig's manual, JSON, includes and the environment.

use std::fs;
use std::path::Path;

use rdmalab_config::{ConfigError, Kind, Value, load, parse};

fn tree(text: &str) -> Value {
    parse("a.conf", text).unwrap_or_else(|errors| panic!("{text}: {}", lines(&errors).join("\n")))
}

fn kind(text: &str) -> Kind {
    tree(&format!("x = {text}")).get("x").expect("it was just written").kind.clone()
}

fn text(value: &str) -> Kind {
    Kind::Text(value.to_owned())
}

fn lines(errors: &[ConfigError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn error(text: &str) -> String {
    let errors = parse("a.conf", text).expect_err(text);
    assert_eq!(errors.len(), 1, "{text}");
    errors[0].to_string()
}

#[test]
fn scalars_are_those_of_the_manual() {
    for (written, kind_of_it) in [
        ("1", Kind::Int(1)),
        ("-17", Kind::Int(-17)),
        ("+3", Kind::Int(3)),
        ("0x1F", Kind::Int(31)),
        ("0Xff", Kind::Int(255)),
        ("0b101", Kind::Int(5)),
        ("0q17", Kind::Int(15)),
        ("5L", Kind::Int(5)),
        ("9223372036854775807LL", Kind::Int(i64::MAX)),
        ("-9223372036854775808L", Kind::Int(i64::MIN)),
        ("0xFFFFFFFFFFFFFFFFL", Kind::Int(-1)),
        ("3000000000", Kind::Int(3_000_000_000)),
        ("1.5", Kind::Float(1.5)),
        (".5", Kind::Float(0.5)),
        ("-2.", Kind::Float(-2.0)),
        ("1e3", Kind::Float(1000.0)),
        ("1.5E-3", Kind::Float(0.0015)),
        ("true", Kind::Bool(true)),
        ("FALSE", Kind::Bool(false)),
        ("\"a\"", text("a")),
        ("\"a\" \"b\"\n  \"c\"", text("abc")),
        (r#""\"\\\n\r\t\f\x41\xc3\xa4""#, text("\"\\\n\r\t\x0cAä")),
        (r#""\q""#, text("\\q")),
        ("\"two\nlines\"", text("two\nlines")),
    ] {
        assert_eq!(kind(written), kind_of_it, "{written}");
    }
}

#[test]
fn settings_may_be_separated_in_each_of_the_ways() {
    let one = tree("a = 1; b : 2, c = { d = 3 e = (1, \"x\", [1, 2,],) };");
    for other in [
        "a=1 b=2 c:{d:3;e:(1,\"x\",[1,2]);}",
        "# comment\na = 1 // comment\nb = /* more\nlines */ 2
        c = { d = 3, e = ( 1, \"x\", [1,2] ) }",
    ] {
        assert_eq!(tree(other), one, "{other}");
    }
    assert_eq!(tree("").kind, Kind::Group(Vec::new()));
    assert!(tree("*a-b_c* = 1").get("*a-b_c*").is_some());
    assert_eq!(kind("()"), Kind::List(Vec::new()));
    assert_eq!(kind("{}"), Kind::Group(Vec::new()));
}

#[test]
fn an_error_of_the_syntax_has_its_place() {
    for (written, said) in [
        (
            "a = \n  b",
            "a.conf:2:3: expected a value, found b; a string needs quotation marks: \"b\"",
        ),
        ("a 1", "a.conf:1:3: expected '=' after \"a\", found 1"),
        ("a = 1;;", "a.conf:1:7: expected a key, found ';'"),
        ("a = ", "a.conf:1:5: the file ends here, without a value"),
        ("a = { b = 1", "a.conf:1:12: the file ends here, without ',' or '}'"),
        ("a = ( 1 2 )", "a.conf:1:9: expected ',' or ')', found 2"),
        (
            "a = 1\na = 2",
            "a.conf:2:1: key \"a\" stands twice in this group; the first one is in line 1",
        ),
        ("a = \"ä\" b = ?", "a.conf:1:13: unexpected character '?'"),
        ("a = \"b", "a.conf:1:5: this string has no end"),
        ("a = \"\\xff\"", "a.conf:1:5: this string is no UTF-8"),
        ("/* a", "a.conf:1:1: this comment has no end"),
        ("a = 99999999999999999999", "a.conf:1:5: 99999999999999999999 does not fit in 64 bits"),
        ("a = 10ms", "a.conf:1:5: 10ms is no number"),
        ("a = 1.5L", "a.conf:1:5: 1.5L is no number"),
        ("a = 1e999", "a.conf:1:5: 1e999 is no number"),
        ("a = 0x", "a.conf:1:5: 0x is no number"),
        (
            "a = [1, \"x\"]",
            "a.conf:1:9: a string in an array that begins with an integer; \"[...]\" holds values \
             of one type, \"(...)\" holds any",
        ),
        (
            "a = [{}]",
            "a.conf:1:6: a group in an array; \"[...]\" holds values of one type, \"(...)\" holds \
             any",
        ),
        (
            "a = 1 @include \"b\"",
            "a.conf:1:7: unexpected '@'; @include \"FILE\" stands at the \
          start of a line",
        ),
        ("@include b", "a.conf:1:1: @include without a file; @include \"FILE\""),
    ] {
        assert_eq!(error(written), said, "{written}");
    }
}

#[test]
fn nesting_has_a_bound() {
    let nested = |depth: usize| format!("x = {}{}", "(".repeat(depth), ")".repeat(depth));
    tree(&nested(64));
    assert!(error(&nested(65)).contains("more than 64 deep"));
}

#[test]
fn json_keeps_its_positions() {
    let json = "{\n  \"a\": [1, \"\\u00e4\\ud83d\\ude00\", {\"b\": null}],\n  \"c\": -1.5e1\n}";
    let tree = parse("a.json", json).unwrap();
    let all = tree.get("a").and_then(Value::elements).unwrap();
    assert_eq!(all[1].kind, text("ä😀"));
    assert_eq!((all[1].at.line(), all[1].at.column()), (2, 12));
    assert_eq!(all[2].get("b").unwrap().kind, Kind::Null);
    assert_eq!(tree.get("c").unwrap().kind, Kind::Float(-15.0));
    // A file that begins with a brace is JSON, whatever its name.
    assert_eq!(parse("a.conf", json).unwrap(), tree);
    for (wrong, said) in [
        ("{\"a\": 1,}", "a.json:1:9: trailing comma"),
        ("{\"a\" = 1}", "a.json:1:6: expected `:`"),
        ("{\"a\": 1 // x\n}", "a.json:1:9: expected `,` or `}`"),
        (
            "{\"a\": 1, \"a\": 2}",
            "a.json:1:10: key \"a\" stands twice in this group; the first one \
          is in line 1",
        ),
    ] {
        assert_eq!(lines(&parse("a.json", wrong).unwrap_err()), [said], "{wrong}");
    }
}

fn write(directory: &Path, name: &str, text: &str) {
    fs::write(directory.join(name), text).expect("a temporary directory is writable");
}

#[test]
fn files_include_others_in_the_place_of_the_directive() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    write(directory, "main.conf", "a = (\n@include \"part*.cfg\"\n)\nb = \"@include c.json\"");
    write(directory, "part1.cfg", "1,");
    write(directory, "part2.cfg", "{ x = 2 }");
    write(directory, "c.json", "{\"y\": 3}");
    let tree = load(&directory.join("main.conf")).unwrap();
    let all = tree.get("a").and_then(Value::elements).unwrap();
    assert_eq!(all[0].kind, Kind::Int(1));
    let x = all[1].get("x").unwrap();
    assert!(x.at.to_string().ends_with("part2.cfg:1:7"), "{}", x.at);
    assert_eq!(tree.get("b").unwrap().get("y").unwrap().kind, Kind::Int(3));

    write(directory, "lost.conf", "\n  @include \"nowhere.cfg\"");
    let errors = load(&directory.join("lost.conf")).unwrap_err();
    let said = lines(&errors).concat();
    assert!(said.ends_with("lost.conf:2:3: there is no file \"nowhere.cfg\""), "{said}");
    // A pattern may match nothing.
    write(directory, "none.conf", "@include \"*.none\"\na = 1");
    load(&directory.join("none.conf")).unwrap();
}

#[test]
fn the_root_is_the_main_file_whatever_it_begins_with() {
    let directory = tempfile::tempdir().unwrap();
    let main = directory.path().join("main.conf");
    write(directory.path(), "main.conf", "@include \"first.cfg\"\nb = 2\n");
    write(directory.path(), "first.cfg", "a = 1\n");
    let tree = load(&main).unwrap();
    assert_eq!(tree.at.source().path, main.display().to_string());
    assert_eq!(tree.at.text(), "@include \"first.cfg\"\nb = 2\n");
}

#[test]
fn included_groups_are_merged_and_lists_joined() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    write(directory, "1.json", "{\"a\": {\"x\": 1, \"y\": 1}, \"b\": 1}");
    write(directory, "2.json", "{\"a\": {\"y\": 2}, \"c\": 2}");
    write(directory, "1.list.json", "[1]");
    write(directory, "2.list.json", "[2]");
    write(directory, "main.json", "{\"g\": \"@include ?.json\", \"l\": \"@include ?.list.json\"}");
    let tree = load(&directory.join("main.json")).unwrap();
    let merged = parse("b.conf", "g = { a = { x = 1 y = 2 } b = 1 c = 2 } l = (1, 2)").unwrap();
    assert_eq!(tree, merged);
    write(directory, "main.json", "{\"g\": \"@include *.json\"}");
    assert!(load(&directory.join("main.json")).is_err());
}

#[test]
fn inclusion_has_a_bound() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("self.conf");
    for text in ["@include \"self.conf\"", "a = \"@include self.conf\""] {
        write(directory.path(), "self.conf", text);
        let said = lines(&load(&path).unwrap_err()).concat();
        assert!(said.contains("include each other more than 10 deep"), "{said}");
    }
    write(directory.path(), "self.conf", "@include \"self.conf\"\n@include \"self.conf\"");
    assert!(load(&path).is_err());
    let missing = load(&directory.path().join("none")).unwrap_err();
    assert!(missing[0].to_string().contains("No such file"), "{}", missing[0]);
}

#[test]
fn variables_of_the_environment_stand_in_strings() {
    // Cargo sets this variable for each test.
    let name = env!("CARGO_PKG_NAME");
    assert_eq!(
        kind("\"<${CARGO_PKG_NAME}|${CARGO_PKG_NAME}>\""),
        text(&format!("<{name}|{name}>"))
    );
    assert_eq!(kind("\"$x ${\""), text("$x ${"));
    let errors = parse("a.conf", "a = \"${CONFIG_NOT_SET}\"\nb = (\"${CONFIG_NOT_SET}\")");
    assert_eq!(
        lines(&errors.unwrap_err()),
        [
            "a.conf:1:5: the environment variable CONFIG_NOT_SET is not set",
            "a.conf:2:6: the environment variable CONFIG_NOT_SET is not set"
        ]
    );
}
