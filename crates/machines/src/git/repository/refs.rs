//! Which refs does a repository have, and which Branch stands for each?
//!
//! The key of a ref is the repository it is in and its name: a fork's `main` never stands for ours.

use std::collections::BTreeMap;

use pawl_api::git::{RepositorySpec, branch};

use crate::git::github::{BranchHead, PullRequest};

/// What the schema of a Branch allows.
const MAX_REF_CHARS: usize = 1024;
const MAX_HEAD_REPOSITORY_CHARS: usize = 201;
const MAX_AUTHOR_CHARS: usize = 100;

/// A ref at its head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub name: String,
    pub sha: String,
    pub pull_request: Option<i64>,
    /// `owner/name`, where that is a fork.
    pub head_repository: Option<String>,
    pub base_sha: Option<String>,
    pub base_ref: Option<String>,
    pub author: Option<String>,
    pub draft: bool,
}

/// All refs to be followed but the default branch, by the name of their Branch, and what is odd about the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Refs {
    pub wanted: BTreeMap<String, Wanted>,
    /// Refs that no Branch can stand for, with what is wrong. They stop nothing else.
    pub bad: Vec<String>,
    pub default_head: Option<String>,
}

/// What GitHub listed, as Branches.
pub(super) fn of(spec: &RepositorySpec, heads: &[BranchHead], pulls: &[PullRequest]) -> Refs {
    let home = format!("{}/{}", spec.owner, spec.name);
    let mut refs = Refs::default();
    for head in heads {
        if head.name == spec.default_branch {
            match problem(&head.name, &head.sha) {
                None => refs.default_head = Some(head.sha.clone()),
                Some(problem) => refs.bad.push(problem),
            }
            continue;
        }
        let wanted = Wanted {
            name: head.name.clone(),
            sha: head.sha.clone(),
            pull_request: None,
            head_repository: None,
            base_sha: None,
            base_ref: None,
            author: None,
            draft: false,
        };
        take(&mut refs, spec, &home, wanted);
    }
    // The highest number is last, and wins.
    let mut pulls: Vec<&PullRequest> = pulls.iter().collect();
    pulls.sort_by_key(|pull| pull.number);
    for pull in pulls {
        let is_ours = pull.head_repository.as_ref().is_some_and(|head| head.eq_ignore_ascii_case(&home));
        // The commits of the default branch are followed one by one; as a pull request it has nothing to add.
        if is_ours && pull.head_ref == spec.default_branch {
            continue;
        }
        let head_repository = (!is_ours).then(|| {
            // GitHub forgets where a fork was once it is gone; two of them are still two.
            pull.head_repository.clone().unwrap_or_else(|| format!("unknown/pull-{}", pull.number))
        });
        let wanted = Wanted {
            name: pull.head_ref.clone(),
            sha: pull.head_sha.clone(),
            pull_request: Some(pull.number),
            head_repository,
            base_sha: Some(pull.base_sha.clone()).filter(|sha| is_sha(sha)),
            base_ref: Some(pull.base_ref.clone()),
            author: Some(pull.author.chars().take(MAX_AUTHOR_CHARS).collect()),
            draft: pull.draft,
        };
        take(&mut refs, spec, &home, wanted);
    }
    refs
}

pub(super) fn is_sha(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn take(refs: &mut Refs, spec: &RepositorySpec, home: &str, mut wanted: Wanted) {
    let head_repository = wanted.head_repository.as_deref().unwrap_or(home);
    if head_repository.chars().count() > MAX_HEAD_REPOSITORY_CHARS {
        refs.bad
            .push(format!("#{}: its head's repository has no name", wanted.pull_request.unwrap_or_default()));
        return;
    }
    if let Some(problem) = problem(&wanted.name, &wanted.sha) {
        refs.bad.push(problem);
        return;
    }
    // GitHub compares owners and repositories without case.
    let name = branch::name(&spec.name, &head_repository.to_ascii_lowercase(), &wanted.name);
    // Both lists were read at about the same time; the one of branches says where a branch is.
    if let Some(of_branch) = refs.wanted.get(&name).filter(|_| wanted.head_repository.is_none()) {
        wanted.sha.clone_from(&of_branch.sha);
    }
    refs.wanted.insert(name, wanted);
}

fn problem(name: &str, sha: &str) -> Option<String> {
    let shown: String = name.chars().take(100).collect();
    if name.is_empty() || name.chars().count() > MAX_REF_CHARS {
        return Some(format!("ref {shown:?}: its name is empty or longer than {MAX_REF_CHARS} characters"));
    }
    (!is_sha(sha))
        .then(|| format!("ref {shown:?}: its head {:?} is no SHA", sha.chars().take(64).collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sha(digit: char) -> String {
        digit.to_string().repeat(40)
    }

    fn head(name: &str, digit: char) -> BranchHead {
        BranchHead { name: name.to_owned(), sha: sha(digit) }
    }

    fn pull(number: i64, from: Option<&str>, reference: &str, digit: char) -> PullRequest {
        PullRequest {
            number,
            head_ref: reference.to_owned(),
            head_sha: sha(digit),
            head_repository: from.map(str::to_owned),
            base_ref: "main".to_owned(),
            base_sha: sha('0'),
            draft: false,
            author: "ann".to_owned(),
            title: String::new(),
        }
    }

    fn spec() -> RepositorySpec {
        serde_json::from_value(
            serde_json::json!({"owner": "Acme", "name": "My_Repo", "githubSecretRef": {"name": "s"}}),
        )
        .unwrap()
    }

    /// `repository ref sha pr` of each.
    fn check(heads: &[BranchHead], pulls: &[PullRequest], expect: &[&str]) -> Refs {
        let refs = of(&spec(), heads, pulls);
        let mut got: Vec<String> = refs
            .wanted
            .values()
            .map(|one| {
                let from = one.head_repository.as_deref().unwrap_or("ours");
                let number = one.pull_request.map_or_else(|| "-".to_owned(), |number| number.to_string());
                format!("{from} {} {} {number}", one.name, &one.sha[..1])
            })
            .collect();
        got.sort();
        assert_eq!(got, expect);
        refs
    }

    #[test]
    fn a_ref_has_the_highest_pull_request_and_the_default_branch_stands_apart() {
        let heads = [head("main", '1'), head("feature/a", '2'), head("b", '3')];
        let pulls = [
            pull(7, Some("acme/my_repo"), "feature/a", '2'),
            pull(5, Some("Acme/My_Repo"), "feature/a", '2'),
            pull(8, Some("acme/my_repo"), "main", '1'),
        ];
        let refs = check(&heads, &pulls, &["ours b 3 -", "ours feature/a 2 7"]);
        assert_eq!(refs.default_head, Some(sha('1')));
    }

    #[test]
    fn a_forks_ref_never_shadows_ours_and_its_main_is_a_pull_request_like_any_other() {
        let heads = [head("main", '1'), head("x", '2')];
        let pulls = [
            pull(5, Some("mallory/my_repo"), "x", '3'),
            pull(6, Some("mallory/my_repo"), "main", '4'),
            pull(7, None, "x", '5'),
            pull(8, None, "x", '6'),
        ];
        let all = [
            "mallory/my_repo main 4 6",
            "mallory/my_repo x 3 5",
            "ours x 2 -",
            "unknown/pull-7 x 5 7",
            "unknown/pull-8 x 6 8",
        ];
        assert_eq!(check(&heads, &pulls, &all).default_head, Some(sha('1')));
    }

    #[test]
    fn a_bad_ref_is_told_and_stops_no_other() {
        let long = "l".repeat(1025);
        let odd = BranchHead { name: "odd".to_owned(), sha: "main".to_owned() };
        let heads = [head(&long, '1'), odd, head("$(SECRET)", '3')];
        let refs = check(&heads, &[], &["ours $(SECRET) 3 -"]);
        assert_eq!(refs.bad.len(), 2);
        assert!(refs.bad[0].len() < 300 && refs.bad[1].contains("\"main\" is no SHA"), "{:?}", refs.bad);
    }

    #[test]
    fn two_lists_that_disagree_about_a_branch_give_what_the_branches_say() {
        let pulls = [pull(5, Some("acme/my_repo"), "x", '9')];
        check(&[head("x", '2')], &pulls, &["ours x 2 5"]);
    }
}
