use super::*;
use proptest::prelude::*;
use serde_json::Value;

#[track_caller]
fn check(pattern: &str, yes: &[&str], no: &[&str]) {
    let glob = Glob::new(pattern).unwrap();
    for path in yes {
        assert!(glob.matches(path), "{pattern} should match {path}");
    }
    for path in no {
        assert!(!glob.matches(path), "{pattern} should not match {path}");
    }
}

/// What doublestar answered, line by line.
#[test]
fn every_recorded_answer_is_ours_too() {
    let recorded = include_str!("../../../tests/data/glob-vectors.jsonl");
    let mut lines = 0;
    let mut wrong = Vec::new();
    for line in recorded.lines() {
        let vector: Value = serde_json::from_str(line).unwrap();
        let (pattern, path) = (vector["pattern"].as_str().unwrap(), vector["path"].as_str().unwrap());
        let glob = Glob::new(pattern);
        let answer = (glob.as_ref().is_ok_and(|glob| glob.matches(path)), glob.is_err());
        if (Some(answer.0), Some(answer.1)) != (vector["match"].as_bool(), vector["bad"].as_bool()) {
            wrong.push(format!("{line}: we say {answer:?}"));
        }
        lines += 1;
    }
    assert!(wrong.is_empty(), "{} of {lines}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(lines > 4900, "{lines}");
}

#[test]
fn stars_stay_in_their_segment_and_double_stars_do_not() {
    check("*.tf", &["a.tf", ".tf", ".hidden.tf"], &["a/b.tf", "a.tfvars"]);
    check("**/*.tf", &["a.tf", "a/b.tf", "a/.b/c.tf"], &["a.tf/b"]);
    check("infra/**", &["infra", "infra/a", "infra/a/b"], &["infrastructure", "x/infra"]);
    check("*/**", &["main.tf", "a/b"], &[]);
    check("a**", &["a", "ab"], &["a/b"]);
    check("**", &["a", "a/b", ""], &[]);
}

#[test]
fn a_character_is_one_whatever_its_bytes() {
    check("?.tf", &["é.tf", "a.tf"], &["éé.tf", "/.tf"]);
    check("[à-ü]", &["é"], &["e", "éé"]);
}

#[test]
fn classes_have_ranges_escapes_and_negation() {
    check("[a-c]x", &["ax", "cx"], &["dx", "x"]);
    check("[^a]b", &["bb", "/b"], &["ab"]);
    check("[!a]b", &["bb"], &["ab"]);
    check(r"[\]a]", &["]", "a"], &["\\"]);
    check("[a-b-d]", &["a", "b", "-", "d"], &["c"]);
    check("[z-a]", &["z"], &["a", "m"]);
    check("[a-]", &["a", "-"], &["b"]);
    check("[-a]", &["a", "-"], &["b"]);
    check("a[/]b", &["a/b"], &["ab"]);
}

#[test]
fn braces_nest_may_be_empty_and_do_not_split_at_a_comma_in_a_class() {
    check("{a,b/{c,d}}/x", &["a/x", "b/c/x", "b/d/x"], &["b/x", "c/x"]);
    check("a{,bc}", &["a", "abc"], &["ab"]);
    check("a{}", &["a"], &["a{}"]);
    check("{a[,;]b,c}", &["a,b", "a;b", "c"], &["ab", "a"]);
    check(r"\{a,b\}", &["{a,b}"], &["a", "b"]);
}

#[test]
fn what_only_the_original_does_we_do() {
    // The start of an alternative counts as the start of a segment.
    check("a{**/x,y}", &["ab/c/x", "ax", "ay"], &["a/b"]);
    check("X/**/**", &["X/b"], &["X"]);
    check("X**/", &["X", "Xa/"], &["Xa/b"]);
    check("**/", &["a/"], &["a"]);
    // Only the last star is tried again, and what a class took for a slash stays taken.
    check("*[^a]*b", &["xxb"], &["x/ab"]);
    // An escaped slash ends a folder, but makes no `**/`.
    check(r"**\/b", &["a/b"], &["b", "a/a/b"]);
    check(r"a\/**", &["a/b", "a/b/c"], &["a"]);
}

#[test]
fn a_malformed_pattern_is_told_with_its_place() {
    for (pattern, position, problem) in [
        ("a[b", 2, Problem::ClassNotClosed),
        ("[", 1, Problem::ClassNotClosed),
        (r"[\]", 1, Problem::ClassNotClosed),
        (r"[a-\", 1, Problem::ClassNotClosed),
        ("é[]", 2, Problem::EmptyClass),
        ("[^]a]", 1, Problem::EmptyClass),
        ("a{b,{c}", 2, Problem::BraceNotClosed),
        ("{a}}", 4, Problem::BraceNotOpened),
        ("a}", 2, Problem::BraceNotOpened),
        (r"a\", 2, Problem::EscapesNothing),
        // The brace is closed by what was meant to be in a class.
        ("{a[}]b}", 3, Problem::EmptyClass),
    ] {
        let bad = Glob::new(pattern).unwrap_err();
        assert_eq!((bad.position, bad.problem), (position, problem), "{pattern}");
    }
    let told = Glob::new("infra/[a/**").unwrap_err().to_string();
    assert_eq!(
        told,
        "\"infra/[a/**\" is not a pattern: character 7: the class that [ opens here is never closed"
    );
}

#[test]
fn a_pattern_that_would_blow_up_is_refused_and_one_that_would_backtrack_is_not_slow() {
    let doubled = Glob::new(&"{a,b}".repeat(10)).unwrap_err();
    assert_eq!(doubled.problem, Problem::TooManyAlternatives);
    let empties = format!("{}{}", "{,}".repeat(9), "{}".repeat(300));
    assert_eq!(Glob::new(&empties).unwrap_err().problem, Problem::TooManyAlternatives);
    assert_eq!(Glob::new(&"x".repeat(1025)).unwrap_err().problem, Problem::TooLong);
    assert!(Glob::new(&format!("{}{}", "{".repeat(512), "}".repeat(512))).unwrap().matches(""));
    // Exponential in a matcher that tries every star again.
    let stars = Glob::new(&format!("**/{}b", "*a".repeat(500))).unwrap();
    assert!(!stars.matches(&"a".repeat(4096)));
    assert!(!stars.matches(&format!("b/{}", "aaaaaaa/".repeat(500))));
}

proptest! {
    /// The short cut must never tell of a path that matches that it does not.
    #[test]
    fn the_fingerprint_never_hides_a_match(pattern in "[ab/*?{},\\\\\\[\\]^-]{0,12}", path in "[ab/]{0,8}") {
        if let Ok(glob) = Glob::new(&pattern) {
            let name: Vec<char> = path.chars().collect();
            let walked = glob.variants.iter().any(|variant| Walk::new(variant, &name).reaches_the_end());
            prop_assert_eq!(glob.matches(&path), walked);
        }
    }

    /// Whatever is typed, it is either a pattern or told not to be one.
    #[test]
    fn nothing_panics(pattern in ".{0,40}", path in ".{0,40}") {
        if let Ok(glob) = Glob::new(&pattern) {
            let _ = glob.matches(&path);
        }
    }
}
