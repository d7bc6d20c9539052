use super::*;
use serde_json::{Value, json};

/// Templates from lines of `name: {…}`, each a spec without what does not matter here.
fn templates(yaml: &str) -> Vec<(String, WorkflowTemplateSpec)> {
    let parsed: BTreeMap<String, Value> = serde_saphyr::from_str(yaml).unwrap();
    let complete = |(name, mut spec): (String, Value)| {
        spec["displayName"] = json!(name);
        spec["job"] = json!({});
        (name, serde_json::from_value(spec).unwrap())
    };
    parsed.into_iter().map(complete).collect()
}

fn borrowed(
    templates: &[(String, WorkflowTemplateSpec)],
) -> impl Iterator<Item = (&str, &WorkflowTemplateSpec)> {
    templates.iter().map(|(name, spec)| (name.as_str(), spec))
}

fn decide(yaml: &str, files: &[ChangedFile], is_default_branch: bool) -> Vec<Verdict> {
    fan_out(files, borrowed(&templates(yaml)), is_default_branch)
}

/// The paths of the one template there is, or why there are none.
fn paths(yaml: &str, files: &[&str]) -> Result<Vec<String>, String> {
    let files: Vec<ChangedFile> = files.iter().map(|file| ChangedFile::new(*file)).collect();
    let verdict = decide(yaml, &files, false).remove(0);
    match &verdict.why_not {
        None => Ok(verdict.targets.iter().map(|target| target.path.clone()).collect()),
        Some(why) => Err(format!("{}: {why}", why.reason().as_str())),
    }
}

const CHANGED: [&str; 5] = ["z/b.tf", "a/y.tf", "main.tf", "a/x.tf", "docs/a.md"];

#[test]
fn a_folder_is_run_for_once_and_the_root_is_none() {
    assert_eq!(paths("t: {match: {paths: ['**/*.tf']}}", &CHANGED).unwrap(), ["a", "z"]);
    assert_eq!(paths("t: {match: {paths: ['**/*.tf']}, rootFiles: run}", &CHANGED).unwrap(), [".", "a", "z"]);
}

#[test]
fn a_file_or_the_repository_may_be_the_unit() {
    assert_eq!(
        paths("t: {match: {paths: ['**/*.tf'], executionUnit: file}}", &CHANGED).unwrap(),
        ["a/x.tf", "a/y.tf", "main.tf", "z/b.tf"]
    );
    assert_eq!(
        paths("t: {match: {paths: ['main.tf', 'a/*'], executionUnit: repository}}", &CHANGED).unwrap(),
        ["."]
    );
}

#[test]
fn i3_what_does_not_run_says_why() {
    for (template, why) in [
        (
            "{match: {paths: ['modules/**']}}",
            "NothingMatched: 5 files changed and none matches: a/x.tf, a/y.tf, docs/a.md, …",
        ),
        (
            "{match: {paths: ['a/**'], ignore: ['*/x.tf', 'a/**']}}",
            "AllIgnored: 2 files match and all are ignored: a/x.tf (by */x.tf), a/y.tf (by a/**)",
        ),
        (
            "{match: {paths: ['*.tf']}}",
            "RootFilesIgnored: 1 file matches, at the root, which counts only with rootFiles: run: main.tf",
        ),
        (
            "{match: {paths: ['**']}, on: default}",
            "OtherRef: on: default: it runs for the default branch only",
        ),
        (
            "{match: {paths: ['**'], ignore: ['ok', 'a{b']}}",
            "BadGlob: spec.match.ignore[1]: \"a{b\" is not a pattern: character 2: the alternatives that { opens here \
             are never closed",
        ),
    ] {
        assert_eq!(paths(&format!("t: {template}"), &CHANGED).unwrap_err(), why);
    }
    assert_eq!(paths("t: {match: {paths: ['**']}}", &[]).unwrap_err(), "NoChangedFiles: no file changed");
    let on_default = decide("t: {match: {paths: ['**']}, on: branch}", &[ChangedFile::new("a/b")], true);
    assert_eq!(on_default[0].why_not, Some(WhyNot::NotOnDefaultBranch));
}

#[test]
fn what_runs_says_why_too() {
    let verdict = decide("t: {match: {paths: ['**/*.tf']}}", &CHANGED.map(ChangedFile::new), true).remove(0);
    let evaluation = verdict.evaluation("u/1");
    assert_eq!((evaluation.workflows, evaluation.reason.as_str()), (2, "Matched"));
    assert_eq!(evaluation.message, "3 files match: a/x.tf, a/y.tf, z/b.tf");
}

#[test]
fn a_rename_across_folders_runs_in_both() {
    let files = [ChangedFile { previous_path: Some("old/x.tf".to_owned()), ..ChangedFile::new("new/x.tf") }];
    let verdict = decide("t: {match: {paths: ['**/*.tf']}}", &files, false).remove(0);
    assert_eq!(verdict.targets.iter().map(|target| target.path.as_str()).collect::<Vec<_>>(), ["new", "old"]);
}

#[test]
fn the_order_of_files_and_templates_changes_nothing() {
    let yaml = "b: {match: {paths: ['**']}}\na: {match: {paths: ['a/**']}, dependsOn: [b]}";
    let mut files = CHANGED.map(ChangedFile::new);
    let there = decide(yaml, &files, false);
    files.reverse();
    let mut backwards = templates(yaml);
    backwards.reverse();
    assert_eq!(fan_out(&files, borrowed(&backwards), false), there);
    assert_eq!(there.iter().map(|verdict| verdict.template.as_str()).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn one_malformed_template_keeps_back_only_itself_and_those_that_wait_for_it() {
    let yaml = "bad: {match: {paths: ['[']}}\nafter: {match: {paths: ['**']}, dependsOn: [bad]}\n\
        later: {match: {paths: ['**']}, dependsOn: [after]}\nfree: {match: {paths: ['**']}}";
    let verdicts = decide(yaml, &CHANGED.map(ChangedFile::new), false);
    let words: Vec<(&str, &str)> =
        verdicts.iter().map(|verdict| (verdict.template.as_str(), verdict.reason().as_str())).collect();
    assert_eq!(
        words,
        [("after", "TemplateInvalid"), ("bad", "BadGlob"), ("free", "Matched"), ("later", "TemplateInvalid")]
    );
}

#[test]
fn every_cycle_is_found_however_many_there_are() {
    let line = |n: usize| {
        format!(
            "a{n}: {{match: {{paths: ['**']}}, dependsOn: [b{n}]}}\nb{n}: {{match: {{paths: ['**']}}, dependsOn: [a{n}]}}\n"
        )
    };
    let yaml: String = (10..40).map(line).collect();
    let verdicts = decide(&yaml, &CHANGED.map(ChangedFile::new), false);
    assert!(verdicts.iter().all(|verdict| matches!(verdict.why_not, Some(WhyNot::Cycle(_)))), "{verdicts:?}");
    assert_eq!(verdicts[0].to_string(), "spec.dependsOn: a10 -> b10 -> a10 is a cycle");
}

#[test]
fn a_target_waits_for_the_same_path_of_what_its_template_depends_on() {
    let yaml = "lint: {match: {paths: ['**/*.tf']}}\nplan: {match: {paths: ['**']}, dependsOn: [lint, gone]}\n\
        apply: {match: {paths: ['a/**']}, dependsOn: [plan]}";
    let templates = templates(yaml);
    let verdicts = fan_out(&CHANGED.map(ChangedFile::new), borrowed(&templates), false);
    assert_eq!(
        stages(&verdicts, borrowed(&templates)),
        [
            // Nobody lints the docs, so nobody waits for that.
            vec![("lint", "a"), ("lint", "z"), ("plan", "docs")],
            vec![("plan", "a"), ("plan", "z")],
            vec![("apply", "a")],
        ]
    );
}

#[test]
fn a_failed_dependency_is_told_before_one_that_runs_and_none_is_no_hindrance() {
    use WorkflowPhase::{Cancelled, Failed, Running, Succeeded};
    let wanted = ["a", "b", "c"].map(str::to_owned);
    let with = |a, b| {
        dependencies(wanted.iter().map(String::as_str), move |name| {
            [("a", a), ("b", b)].iter().find(|one| one.0 == name).map(|one| one.1)
        })
    };
    assert_eq!(with(Some(Succeeded), Some(Succeeded)), Dependencies::Met);
    assert_eq!(with(Some(Running), Some(Failed)), Dependencies::Failed("b"));
    assert_eq!(with(Some(Cancelled), None), Dependencies::Failed("a"));
    assert_eq!(with(Some(Succeeded), None), Dependencies::Waiting("b"));
}

#[test]
fn what_is_told_fits_into_a_status_whatever_files_are_called() {
    let long = format!("{}/x.tf", "é".repeat(4000));
    let pattern = "{a,".repeat(300);
    for yaml in [
        "t: {match: {paths: ['a/**']}}".to_owned(),
        "t: {match: {paths: ['**'], ignore: ['**']}}".to_owned(),
        "t: {match: {paths: ['**']}}".to_owned(),
        format!("t: {{match: {{paths: ['{pattern}']}}}}"),
    ] {
        let files: Vec<ChangedFile> = (0..5).map(|n| ChangedFile::new(format!("{n}{long}"))).collect();
        let message = decide(&yaml, &files, false).remove(0).evaluation("u/1").message;
        assert!(message.chars().count() <= 1024, "{message}");
    }
}
