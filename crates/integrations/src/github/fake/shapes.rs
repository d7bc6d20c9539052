//! How does GitHub show a thing? Its fields, names and nesting, as its description has them.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::APP_ID;
use super::git::{Commit, Difference, Entry, Relation};
use super::world::{CheckRun, Comment, Pull, Repository, Role, Status, World};

/// Where pages for people would be.
const HTML: &str = "https://github.example";

/// Addresses of a repository that are plain: `"<field>_url"` and the path it stands for.
const URIS: &[(&str, &str)] = &[
    ("contributors_url", "/contributors"),
    ("deployments_url", "/deployments"),
    ("downloads_url", "/downloads"),
    ("events_url", "/events"),
    ("forks_url", "/forks"),
    ("hooks_url", "/hooks"),
    ("languages_url", "/languages"),
    ("merges_url", "/merges"),
    ("stargazers_url", "/stargazers"),
    ("subscribers_url", "/subscribers"),
    ("subscription_url", "/subscription"),
    ("tags_url", "/tags"),
    ("teams_url", "/teams"),
];

/// Those with a place to fill in.
const TEMPLATES: &[(&str, &str)] = &[
    ("archive_url", "/{archive_format}{/ref}"),
    ("assignees_url", "/assignees{/user}"),
    ("blobs_url", "/git/blobs{/sha}"),
    ("branches_url", "/branches{/branch}"),
    ("collaborators_url", "/collaborators{/collaborator}"),
    ("comments_url", "/comments{/number}"),
    ("commits_url", "/commits{/sha}"),
    ("compare_url", "/compare/{base}...{head}"),
    ("contents_url", "/contents/{+path}"),
    ("git_commits_url", "/git/commits{/sha}"),
    ("git_refs_url", "/git/refs{/sha}"),
    ("git_tags_url", "/git/tags{/sha}"),
    ("issue_comment_url", "/issues/comments{/number}"),
    ("issue_events_url", "/issues/events{/number}"),
    ("issues_url", "/issues{/number}"),
    ("keys_url", "/keys{/key_id}"),
    ("labels_url", "/labels{/name}"),
    ("milestones_url", "/milestones{/number}"),
    ("notifications_url", "/notifications{?since,all,participating}"),
    ("pulls_url", "/pulls{/number}"),
    ("releases_url", "/releases{/id}"),
    ("statuses_url", "/statuses/{sha}"),
    ("trees_url", "/git/trees{/sha}"),
];

/// What a repository of a test has none of.
const FALSE: &[&str] = &[
    "archived",
    "disabled",
    "has_discussions",
    "has_pages",
    "has_projects",
    "has_wiki",
    "is_template",
    "web_commit_signoff_required",
];
const ZERO: &[&str] = &[
    "forks",
    "forks_count",
    "open_issues",
    "open_issues_count",
    "stargazers_count",
    "watchers",
    "watchers_count",
];
const NULL: &[&str] = &["description", "homepage", "language", "license", "mirror_url"];

/// Everything is shown with addresses below `api`.
#[derive(Clone, Copy)]
pub(super) struct Shapes<'a> {
    pub(super) world: &'a World,
    pub(super) api: &'a str,
}

/// All check runs of one App on one commit are a suite: its id follows from the commit.
pub(super) fn suite_id(sha: &str) -> i64 {
    i64::from_str_radix(sha.get(..8).unwrap_or_default(), 16).unwrap_or_default()
}

impl Shapes<'_> {
    /// An address below a repository.
    pub(super) fn of(&self, repository: &Repository, path: &str) -> String {
        format!("{}/repos/{}{path}", self.api, repository.full_name())
    }

    pub(super) fn user(&self, login: &str) -> Value {
        let url = format!("{}/users/{login}", self.api);
        let below = |path: &str| format!("{url}{path}");
        let id = self.world.user_id(login);
        json!({
            "login": login, "id": id, "node_id": format!("U_{id}"), "gravatar_id": "",
            "avatar_url": format!("{HTML}/avatars/{id}"), "url": url, "html_url": format!("{HTML}/{login}"),
            "followers_url": below("/followers"), "following_url": below("/following{/other_user}"),
            "gists_url": below("/gists{/gist_id}"), "starred_url": below("/starred{/owner}{/repo}"),
            "subscriptions_url": below("/subscriptions"), "organizations_url": below("/orgs"),
            "repos_url": below("/repos"), "events_url": below("/events{/privacy}"),
            "received_events_url": below("/received_events"),
            "type": if login.ends_with("[bot]") { "Bot" } else { "User" }, "site_admin": false,
        })
    }

    pub(super) fn collaborator(&self, login: &str, role: Option<Role>) -> Value {
        let (role_name, permission) = role.map_or(("none", "none"), Role::names);
        let mut user = self.user(login);
        if let Some(user) = user.as_object_mut() {
            user.insert("role_name".to_owned(), json!(role_name));
            let may = |least: &[Role]| role.is_some_and(|role| least.contains(&role));
            let permissions = json!({
                "pull": role.is_some(), "triage": role.is_some() && role != Some(Role::Read),
                "push": role.is_some_and(Role::may_push), "maintain": may(&[Role::Maintain, Role::Admin]),
                "admin": may(&[Role::Admin]),
            });
            user.insert("permissions".to_owned(), permissions);
        }
        json!({"permission": permission, "role_name": role_name, "user": user})
    }

    /// As it stands in lists and inside other things.
    pub(super) fn repository(&self, repository: &Repository) -> Value {
        let full_name = repository.full_name();
        let html = format!("{HTML}/{full_name}");
        let mut shown = json!({
            "id": repository.id, "node_id": format!("R_{}", repository.id), "name": repository.name,
            "full_name": full_name, "private": false, "owner": self.user(&repository.owner), "html_url": html,
            "fork": repository.parent.is_some(), "url": self.of(repository, ""),
            "created_at": time(repository.created_at), "updated_at": time(repository.pushed_at),
            "pushed_at": time(repository.pushed_at), "git_url": format!("git://github.example/{full_name}.git"),
            "ssh_url": format!("git@github.example:{full_name}.git"), "clone_url": format!("{html}.git"),
            "svn_url": html, "size": 1, "has_issues": true, "has_downloads": true, "allow_forking": true, "topics": [],
            "visibility": "public", "default_branch": repository.default_branch,
        });
        if let Some(shown) = shown.as_object_mut() {
            for (field, path) in URIS.iter().chain(TEMPLATES) {
                shown.insert((*field).to_owned(), json!(self.of(repository, path)));
            }
            let same = |fields: &[&str], value: Value| -> Vec<(String, Value)> {
                fields.iter().map(|field| ((*field).to_owned(), value.clone())).collect()
            };
            shown.extend(same(FALSE, json!(false)));
            shown.extend(same(ZERO, json!(0)));
            shown.extend(same(NULL, json!(null)));
        }
        shown
    }

    /// As it is shown alone.
    pub(super) fn full_repository(&self, repository: &Repository) -> Value {
        let mut shown = self.repository(repository);
        let parent = repository.parent.and_then(|parent| self.world.repositories.get(&parent));
        if let Some(shown) = shown.as_object_mut() {
            shown.insert("network_count".to_owned(), json!(0));
            shown.insert("subscribers_count".to_owned(), json!(0));
            if let Some(parent) = parent {
                shown.insert("parent".to_owned(), self.repository(parent));
                shown.insert("source".to_owned(), self.repository(parent));
            }
        }
        shown
    }

    pub(super) fn branch(&self, repository: &Repository, name: &str, sha: &str) -> Value {
        json!({"name": name, "protected": false,
            "commit": {"sha": sha, "url": self.of(repository, &format!("/commits/{sha}"))}})
    }

    pub(super) fn commit(&self, repository: &Repository, commit: &Commit) -> Value {
        let Commit { sha, tree, message, author, at, .. } = commit;
        let url = self.of(repository, &format!("/commits/{sha}"));
        let html = |sha: &str| format!("{HTML}/{}/commit/{sha}", repository.full_name());
        let who =
            json!({"name": author, "email": format!("{author}@users.noreply.example"), "date": time(*at)});
        let parent = |sha: &String| json!({"sha": sha, "url": self.of(repository, &format!("/commits/{sha}")), "html_url": html(sha)});
        json!({
            "sha": sha, "node_id": format!("C_{sha}"), "url": url, "html_url": html(sha),
            "comments_url": format!("{url}/comments"),
            "commit": {
                "author": who, "committer": who, "message": message, "comment_count": 0,
                "tree": {"sha": tree, "url": self.of(repository, &format!("/git/trees/{tree}"))},
                "url": self.of(repository, &format!("/git/commits/{sha}")),
                "verification": {"verified": false, "reason": "unsigned", "signature": null, "payload": null,
                    "verified_at": null},
            },
            "author": self.user(author), "committer": self.user(author),
            "parents": commit.parents.iter().map(parent).collect::<Vec<_>>(),
        })
    }

    /// As a push tells it.
    pub(super) fn pushed_commit(&self, commit: &Commit) -> Value {
        let changes = self.world.objects.changes(commit);
        let of = |statuses: &[&str]| -> Vec<&str> {
            changes
                .iter()
                .filter(|change| statuses.contains(&change.status))
                .map(|change| change.path.as_str())
                .collect()
        };
        let who = json!({"name": commit.author, "username": commit.author,
            "email": format!("{}@users.noreply.example", commit.author)});
        json!({
            "id": commit.sha, "tree_id": commit.tree, "distinct": true, "message": commit.message,
            "timestamp": time(commit.at), "url": format!("{HTML}/commit/{}", commit.sha), "author": who, "committer": who,
            "added": of(&["added", "renamed"]), "removed": of(&["removed"]), "modified": of(&["modified"]),
        })
    }

    pub(super) fn file(&self, repository: &Repository, at: &str, change: &Difference) -> Value {
        let Difference { path, previous, status, sha, additions, deletions } = change;
        let html =
            |view: &str| format!("{HTML}/{}/{view}/{at}/{}", repository.full_name(), escaped_path(path));
        let mut shown = json!({
            "sha": sha, "filename": path, "status": status, "additions": additions, "deletions": deletions,
            "changes": additions + deletions, "blob_url": html("blob"), "raw_url": html("raw"),
            "contents_url": self.of(repository, &format!("/contents/{}?ref={at}", escaped_path(path))),
        });
        if let (Some(previous), Some(shown)) = (previous, shown.as_object_mut()) {
            shown.insert("previous_filename".to_owned(), json!(previous));
        }
        shown
    }

    pub(super) fn tree(
        &self,
        repository: &Repository,
        sha: &str,
        entries: &[Entry],
        truncated: bool,
    ) -> Value {
        let entry = |entry: &Entry| {
            let kind = if entry.size.is_some() { "blob" } else { "tree" };
            let mut shown = Map::from_iter([
                ("path".to_owned(), json!(entry.name)),
                ("mode".to_owned(), json!(entry.mode())),
                ("type".to_owned(), json!(kind)),
                ("sha".to_owned(), json!(entry.sha)),
                ("url".to_owned(), json!(self.of(repository, &format!("/git/{kind}s/{}", entry.sha)))),
            ]);
            shown.extend(entry.size.map(|size| ("size".to_owned(), json!(size))));
            Value::Object(shown)
        };
        json!({"sha": sha, "url": self.of(repository, &format!("/git/trees/{sha}")), "truncated": truncated,
            "tree": entries.iter().map(entry).collect::<Vec<_>>()})
    }

    pub(super) fn pull(&self, repository: &Repository, pull: &Pull, full: bool) -> Value {
        let number = pull.number;
        let url = self.of(repository, &format!("/pulls/{number}"));
        let issue = self.of(repository, &format!("/issues/{number}"));
        let html = format!("{HTML}/{}/pull/{number}", repository.full_name());
        let statuses = self.of(repository, &format!("/statuses/{}", pull.head_sha));
        let head = pull.head_repository.and_then(|head| self.world.repositories.get(&head));
        let below = |path: &str| format!("{url}{path}");
        let href = |address: &str| json!({"href": address});
        let closed_at = (!pull.open).then(|| time(pull.updated_at));
        let mut shown = json!({
            "url": url, "id": pull.id, "node_id": format!("PR_{}", pull.id), "html_url": html,
            "diff_url": format!("{html}.diff"), "patch_url": format!("{html}.patch"), "issue_url": issue,
            "number": number, "state": if pull.open { "open" } else { "closed" }, "locked": false,
            "title": pull.title, "user": self.user(&pull.author), "body": null, "created_at": time(pull.created_at),
            "updated_at": time(pull.updated_at), "closed_at": closed_at, "merged_at": null,
            "merge_commit_sha": null, "assignee": null, "assignees": [], "requested_reviewers": [],
            "requested_teams": [], "labels": [], "milestone": null, "draft": pull.draft,
            "commits_url": below("/commits"), "review_comments_url": below("/comments"),
            "review_comment_url": self.of(repository, "/pulls/comments{/number}"),
            "comments_url": format!("{issue}/comments"), "statuses_url": statuses,
            "head": {
                "label": format!("{}:{}", pull.head_owner, pull.head), "ref": pull.head, "sha": pull.head_sha,
                "user": self.user(&pull.head_owner), "repo": head.map(|head| self.repository(head)),
            },
            "base": {
                "label": format!("{}:{}", repository.owner, pull.base), "ref": pull.base, "sha": pull.base_sha,
                "user": self.user(&repository.owner), "repo": self.repository(repository),
            },
            "_links": {
                "self": href(&url), "html": href(&html), "issue": href(&issue),
                "comments": href(&format!("{issue}/comments")), "review_comments": href(&below("/comments")),
                "review_comment": href(&self.of(repository, "/pulls/comments{/number}")),
                "commits": href(&below("/commits")), "statuses": href(&statuses),
            },
            "author_association": self.association(repository, &pull.author), "auto_merge": null,
            "active_lock_reason": null,
        });
        if let (true, Some(shown)) = (full, shown.as_object_mut()) {
            let changes = self.world.pull_changes(pull);
            let sum = |of: fn(&Difference) -> usize| changes.iter().map(of).sum::<usize>();
            let commits = self.world.objects.log(&pull.base_sha, &pull.head_sha).len();
            shown.extend([
                ("merged".to_owned(), json!(false)),
                ("mergeable".to_owned(), json!(null)),
                ("rebaseable".to_owned(), json!(null)),
                ("mergeable_state".to_owned(), json!("unknown")),
                ("merged_by".to_owned(), json!(null)),
                ("comments".to_owned(), json!(0)),
                ("review_comments".to_owned(), json!(0)),
                ("maintainer_can_modify".to_owned(), json!(false)),
                ("commits".to_owned(), json!(commits)),
                ("additions".to_owned(), json!(sum(|change| change.additions))),
                ("deletions".to_owned(), json!(sum(|change| change.deletions))),
                ("changed_files".to_owned(), json!(changes.len())),
            ]);
        }
        shown
    }

    pub(super) fn check_run(&self, repository: &Repository, run: &CheckRun) -> Value {
        let url = self.of(repository, &format!("/check-runs/{}", run.id));
        let html = format!("{HTML}/{}/runs/{}", repository.full_name(), run.id);
        json!({
            "id": run.id, "head_sha": run.head_sha, "node_id": format!("CR_{}", run.id),
            "external_id": run.external_id, "url": url, "html_url": html,
            "details_url": run.details_url.as_ref().unwrap_or(&html), "status": run.status,
            "conclusion": run.conclusion, "started_at": run.started_at.map(time),
            "completed_at": run.completed_at.map(time),
            "output": {"title": run.title, "summary": run.summary, "text": run.text, "annotations_count": 0,
                "annotations_url": format!("{url}/annotations")},
            "name": run.name, "check_suite": {"id": suite_id(&run.head_sha)}, "app": self.app(repository),
            "pull_requests": self.pulls_at(repository, &run.head_sha),
        })
    }

    fn app(&self, repository: &Repository) -> Value {
        let at = time(Timestamp::UNIX_EPOCH);
        json!({"id": APP_ID, "slug": "pawl", "node_id": format!("A_{APP_ID}"), "owner": self.user(&repository.owner),
            "name": "Pawl", "description": null, "external_url": "https://pawl.example", "created_at": at,
            "html_url": format!("{HTML}/apps/pawl"), "updated_at": at,
            "permissions": {"checks": "write", "contents": "read", "metadata": "read"}, "events": ["push"]})
    }

    /// GitHub lists those from the repository itself, not from forks.
    fn pulls_at(&self, repository: &Repository, sha: &str) -> Vec<Value> {
        let home = json!({"id": repository.id, "url": self.of(repository, ""), "name": repository.name});
        let ours = repository
            .pulls
            .values()
            .filter(|pull| pull.open && pull.head_sha == sha && pull.head_repository == Some(repository.id));
        ours.map(|pull| {
            json!({"id": pull.id, "number": pull.number, "url": self.of(repository, &format!("/pulls/{}", pull.number)),
                "head": {"ref": pull.head, "sha": pull.head_sha, "repo": home},
                "base": {"ref": pull.base, "sha": pull.base_sha, "repo": home}})
        })
        .collect()
    }

    pub(super) fn status(&self, repository: &Repository, status: &Status) -> Value {
        json!({
            "url": self.of(repository, &format!("/statuses/{}", status.sha)), "avatar_url": null, "id": status.id,
            "node_id": format!("SC_{}", status.id), "state": status.state, "description": status.description,
            "target_url": status.target_url, "context": status.context, "created_at": time(status.at),
            "updated_at": time(status.at), "creator": self.user(&status.creator),
        })
    }

    pub(super) fn comment(&self, repository: &Repository, comment: &Comment) -> Value {
        let Comment { id, number, author, body, created_at, updated_at } = comment;
        json!({
            "id": id, "node_id": format!("IC_{id}"), "url": self.of(repository, &format!("/issues/comments/{id}")),
            "html_url": format!("{HTML}/{}/issues/{number}#issuecomment-{id}", repository.full_name()),
            "body": body, "user": self.user(author), "created_at": time(*created_at), "updated_at": time(*updated_at),
            "issue_url": self.of(repository, &format!("/issues/{number}")),
            "author_association": self.association(repository, author), "performed_via_github_app": null,
        })
    }

    fn association(&self, repository: &Repository, login: &str) -> &'static str {
        match repository.roles.get(login) {
            _ if login == repository.owner => "OWNER",
            Some(_) => "COLLABORATOR",
            None => "NONE",
        }
    }

    /// A comparison, with these of its commits, and the files if they belong on this page.
    pub(super) fn comparison(
        &self,
        repository: &Repository,
        (base, head): (&Commit, &Commit),
        relation: &Relation<'_>,
        commits: &[&Arc<Commit>],
        files: &[Difference],
    ) -> Option<Value> {
        let (ahead, behind) = (relation.ahead.len(), relation.behind);
        let status = match (ahead, behind) {
            (0, 0) => "identical",
            (_, 0) => "ahead",
            (0, _) => "behind",
            (_, _) => "diverged",
        };
        let between = format!("{}...{}", base.sha, head.sha);
        let html = format!("{HTML}/{}/compare/{between}", repository.full_name());
        Some(json!({
            "url": self.of(repository, &format!("/compare/{between}")), "html_url": html, "permalink_url": html,
            "diff_url": format!("{html}.diff"), "patch_url": format!("{html}.patch"),
            "base_commit": self.commit(repository, base),
            "merge_base_commit": self.commit(repository, relation.merge_base?),
            "status": status, "ahead_by": ahead, "behind_by": behind, "total_commits": ahead,
            "commits": commits.iter().map(|commit| self.commit(repository, commit)).collect::<Vec<_>>(),
            "files": files.iter().map(|file| self.file(repository, &head.sha, file)).collect::<Vec<_>>(),
        }))
    }
}

/// A path as it stands in an address.
fn escaped_path(path: &str) -> String {
    path.split('/').map(crate::github::address::escaped).collect::<Vec<_>>().join("/")
}

/// As GitHub writes times.
pub(super) fn time(at: Timestamp) -> String {
    at.to_string()
}
