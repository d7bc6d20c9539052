//! What does GitHub answer? One request in, one answer out.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH, LINK, LOCATION, RETRY_AFTER};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use jiff::Timestamp;
use ring::digest;
use serde_json::{Value, json};

use super::access::Caller;
use super::asked::Asked;
use super::fault::Trouble;
use super::git::{Difference, differences};
use super::shapes::Shapes;
use super::world::{Comment, Pull, Repository, Role, World};
use crate::transport::Broken;

/// A page, unless told otherwise.
const DEFAULT_PAGE: usize = 30;
/// A commit shows so many files at once unless told otherwise.
const COMMIT_FILES_PAGE: usize = 300;
const MAX_LISTED_FILES: usize = 3000;
const MAX_COMPARED_FILES: usize = 300;

const DOCUMENTATION: &str = "https://docs.github.com/rest";

/// An answer before it has headers.
#[derive(Debug)]
pub(super) struct Answer {
    status: u16,
    body: Value,
    link: Option<String>,
    location: Option<String>,
}

impl Answer {
    pub(super) fn new(status: u16, body: Value) -> Self {
        Self { status, body, link: None, location: None }
    }

    pub(super) fn at(mut self, location: String) -> Self {
        self.location = Some(location);
        self
    }

    pub(super) fn refused(status: u16, message: &str) -> Self {
        Self::new(
            status,
            json!({"message": message, "documentation_url": DOCUMENTATION, "status": status.to_string()}),
        )
    }

    pub(super) fn not_found() -> Self {
        Self::refused(404, "Not Found")
    }

    /// 422, in its own shape.
    pub(super) fn invalid(resource: &str, field: &str, code: &str) -> Self {
        let error = json!({"resource": resource, "field": field, "code": code});
        Self::new(
            422,
            json!({"message": "Validation Failed", "errors": [error], "documentation_url": DOCUMENTATION}),
        )
    }

    fn no_commit(name: &str) -> Self {
        let message = format!("No commit found for SHA: {name}");
        Self::new(422, json!({"message": message, "documentation_url": DOCUMENTATION}))
    }
}

impl World {
    pub(super) fn call(&mut self, request: &Request<Bytes>) -> Result<Response<Bytes>, Broken> {
        self.requests += 1;
        let trouble = self.orders.take(request.method(), request.uri().path());
        match trouble.filter(|trouble| !trouble.is_after()) {
            Some(trouble) => self.spoiled(trouble),
            None => {
                let answer = self.answered(request);
                trouble.map_or(Ok(answer), |trouble| self.spoiled(trouble))
            }
        }
    }

    fn answered(&mut self, request: &Request<Bytes>) -> Response<Bytes> {
        let now = self.now();
        let caller = match self.access.caller(request.headers(), now) {
            Ok(caller) => caller,
            Err(message) => return self.rendered(None, &Answer::refused(401, message)),
        };
        if !self.access.spend(&caller, now) {
            let message = "API rate limit exceeded for this credential.";
            return self.rendered(Some(&caller), &Answer::refused(403, message));
        }
        let asked = Asked::read(request);
        let answer = self.route(&asked, &caller);
        let mut response = self.rendered(Some(&caller), &answer);
        if *asked.method == Method::GET && answer.status == 200 {
            let etag = format!("W/\"{}\"", hex::encode(digest::digest(&digest::SHA256, response.body())));
            let known = request.headers().get(IF_NONE_MATCH).and_then(|known| known.to_str().ok());
            if known == Some(etag.as_str()) {
                self.access.give_back(&caller, now);
                response = self.rendered(Some(&caller), &answer);
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                *response.body_mut() = Bytes::new();
            }
            response.headers_mut().extend(HeaderValue::try_from(etag).ok().map(|etag| (ETAG, etag)));
        }
        response
    }

    fn route(&mut self, asked: &Asked<'_>, caller: &Caller) -> Answer {
        let segments: Vec<&str> = asked.segments.iter().map(String::as_str).collect();
        let (repository, rest) = match segments.as_slice() {
            ["app", "installations", id, "access_tokens"] if *asked.method == Method::POST => {
                return self.access_token(caller, id);
            }
            ["repos", owner, name, rest @ ..] => (self.find(&format!("{owner}/{name}")), rest.to_vec()),
            ["repositories", id, rest @ ..] => {
                (id.parse().ok().and_then(|id: i64| self.repositories.get(&id)), rest.to_vec())
            }
            _ => (None, Vec::new()),
        };
        let Some(repository) = repository else { return Answer::not_found() };
        if *caller == Caller::App {
            return Answer::refused(403, "Resource not accessible by integration");
        }
        if *asked.method == Method::GET {
            return self.read(asked, repository, &rest);
        }
        let id = repository.id;
        self.write(asked, caller, id, &rest)
    }

    fn read(&self, asked: &Asked<'_>, repository: &Repository, path: &[&str]) -> Answer {
        let shapes = Shapes { world: self, api: &asked.api };
        match path {
            [] => Answer::new(200, shapes.full_repository(repository)),
            ["branches"] => {
                let branches = repository.branches.iter().collect();
                listed(asked, repository, branches, |(name, sha)| shapes.branch(repository, name, sha))
            }
            ["pulls"] => listed(asked, repository, pulls(asked, repository), |pull| {
                shapes.pull(repository, pull, false)
            }),
            ["pulls", number] => match pull(repository, number) {
                Some(pull) => Answer::new(200, shapes.pull(repository, pull, true)),
                None => Answer::not_found(),
            },
            ["pulls", number, "files"] => match pull(repository, number) {
                Some(pull) => {
                    let changes = self.pull_changes(pull);
                    let files = changes.iter().take(MAX_LISTED_FILES).collect();
                    listed(asked, repository, files, |change| shapes.file(repository, &pull.head_sha, change))
                }
                None => Answer::not_found(),
            },
            ["commits", name] => self.commit(asked, shapes, repository, name),
            ["commits", name, "check-runs"] => self.check_runs(asked, shapes, repository, name),
            ["commits", name, "statuses"] => match self.resolve(repository, name) {
                Some(commit) => {
                    let newest_first = repository.statuses.iter().rev();
                    let of_commit = newest_first.filter(|status| status.sha == commit.sha).collect();
                    listed(asked, repository, of_commit, |status| shapes.status(repository, status))
                }
                None => Answer::no_commit(name),
            },
            ["compare", between] => self.compare(asked, shapes, repository, between),
            ["git", "trees", sha] => self.tree(asked, shapes, repository, sha),
            ["check-runs", id] => match id.parse().ok().and_then(|id: i64| repository.check_runs.get(&id)) {
                Some(run) => Answer::new(200, shapes.check_run(repository, run)),
                None => Answer::not_found(),
            },
            ["issues", "comments"] => {
                let comments = comments(asked, repository, None);
                listed(asked, repository, comments, |comment| shapes.comment(repository, comment))
            }
            ["issues", number, "comments"] => match number.parse() {
                Ok(number) if number > 0 && number <= repository.last_number => {
                    let comments = comments(asked, repository, Some(number));
                    listed(asked, repository, comments, |comment| shapes.comment(repository, comment))
                }
                Ok(_) | Err(_) => Answer::not_found(),
            },
            ["collaborators", login, "permission"] => {
                let login = repository
                    .roles
                    .keys()
                    .find(|known| known.eq_ignore_ascii_case(login))
                    .map_or(*login, String::as_str);
                if !self.knows_user(login) {
                    return Answer::refused(404, &format!("{login} is not a user"));
                }
                // The repository is public: whoever is somebody may read it.
                let role = repository.roles.get(login).copied().unwrap_or(Role::Read);
                Answer::new(200, shapes.collaborator(login, Some(role)))
            }
            _ => Answer::not_found(),
        }
    }

    /// From where the pull request parted from its base to its head.
    pub(super) fn pull_changes(&self, pull: &Pull) -> Vec<Difference> {
        let base = self.objects.merge_base(&pull.base_sha, &pull.head_sha).map(|base| base.files.clone());
        let head = self.objects.get(&pull.head_sha).map(|head| head.files.clone());
        differences(&base.unwrap_or_default(), &head.unwrap_or_default())
    }

    fn commit(&self, asked: &Asked<'_>, shapes: Shapes<'_>, repository: &Repository, name: &str) -> Answer {
        if repository.branches.is_empty() {
            return Answer::refused(409, "Git Repository is empty.");
        }
        let Some(commit) = self.resolve(repository, name) else { return Answer::no_commit(name) };
        let changes = self.objects.changes(commit);
        let sum = |of: fn(&Difference) -> usize| changes.iter().map(of).sum::<usize>();
        let (additions, deletions) = (sum(|change| change.additions), sum(|change| change.deletions));
        let listed: Vec<&Difference> = changes.iter().take(MAX_LISTED_FILES).collect();
        let (files, link) = asked.paged(repository, listed, COMMIT_FILES_PAGE);
        let files: Vec<Value> =
            files.into_iter().map(|change| shapes.file(repository, &commit.sha, change)).collect();
        let mut body = shapes.commit(repository, commit);
        if let Some(body) = body.as_object_mut() {
            let stats =
                json!({"additions": additions, "deletions": deletions, "total": additions + deletions});
            body.insert("stats".to_owned(), stats);
            body.insert("files".to_owned(), json!(files));
        }
        Answer { link, ..Answer::new(200, body) }
    }

    fn compare(
        &self,
        asked: &Asked<'_>,
        shapes: Shapes<'_>,
        repository: &Repository,
        between: &str,
    ) -> Answer {
        let Some((base, head)) = between.split_once("...") else { return Answer::not_found() };
        let (base, head) = (self.resolve(repository, base), self.resolve(repository, head));
        let (Some(base), Some(head)) = (base, head) else { return Answer::not_found() };
        let relation = self.objects.relation(&base.sha, &head.sha);
        let Some(merge_base) = relation.merge_base else {
            return Answer::refused(404, "No common ancestor between the two commits.");
        };
        let (commits, link) = asked.paged(repository, relation.ahead.clone(), DEFAULT_PAGE);
        // The files stand on the first page alone.
        let first = asked.page() == 1;
        let mut files = if first { differences(&merge_base.files, &head.files) } else { Vec::new() };
        files.truncate(MAX_COMPARED_FILES);
        match shapes.comparison(repository, (base, head), &relation, &commits, &files) {
            Some(body) => Answer { link, ..Answer::new(200, body) },
            None => Answer::not_found(),
        }
    }

    fn tree(&self, asked: &Asked<'_>, shapes: Shapes<'_>, repository: &Repository, name: &str) -> Answer {
        let sha =
            self.resolve(repository, name).map_or_else(|| name.to_owned(), |commit| commit.tree.clone());
        let Some(entries) = self.objects.tree(&sha) else { return Answer::not_found() };
        let mut entries =
            if asked.query("recursive").is_some() { self.objects.below(&sha) } else { entries.to_vec() };
        let truncated = entries.len() > self.max_tree_entries;
        entries.truncate(self.max_tree_entries);
        Answer::new(200, shapes.tree(repository, &sha, &entries, truncated))
    }

    fn check_runs(
        &self,
        asked: &Asked<'_>,
        shapes: Shapes<'_>,
        repository: &Repository,
        name: &str,
    ) -> Answer {
        let Some(commit) = self.resolve(repository, name) else { return Answer::no_commit(name) };
        let newest_first = repository.check_runs.values().rev().filter(|run| run.head_sha == commit.sha);
        let mut runs: Vec<_> = newest_first.collect();
        if asked.query("filter") != Some("all") {
            let mut seen = BTreeSet::new();
            runs.retain(|run| seen.insert(&run.name));
        }
        if let Some(app) = asked.query("app_id") {
            runs.retain(|_| app == super::APP_ID.to_string());
        }
        if let Some(name) = asked.query("check_name") {
            runs.retain(|run| run.name == name);
        }
        if let Some(status) = asked.query("status") {
            runs.retain(|run| run.status == status);
        }
        let total = runs.len();
        let (runs, link) = asked.paged(repository, runs, DEFAULT_PAGE);
        let shown: Vec<Value> = runs.into_iter().map(|run| shapes.check_run(repository, run)).collect();
        Answer { link, ..Answer::new(200, json!({"total_count": total, "check_runs": shown})) }
    }

    fn rendered(&mut self, caller: Option<&Caller>, answer: &Answer) -> Response<Bytes> {
        let now = self.now();
        let mut response = Response::new(Bytes::from(answer.body.to_string()));
        *response.status_mut() =
            StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
        let text = |text: &Option<String>| text.as_deref().and_then(|text| HeaderValue::from_str(text).ok());
        headers.extend(text(&answer.link).map(|link| (LINK, link)));
        headers.extend(text(&answer.location).map(|location| (LOCATION, location)));
        for (name, value) in caller.map(|caller| self.access.headers(caller, now)).into_iter().flatten() {
            headers.insert(name, value);
        }
        response
    }

    /// What somebody gets who was unlucky.
    fn spoiled(&mut self, trouble: Trouble) -> Result<Response<Bytes>, Broken> {
        if let Some(broken) = trouble.broken() {
            return Err(broken);
        }
        Ok(match trouble {
            Trouble::SecondaryLimit { retry_after } => {
                let message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.";
                let mut response = self.rendered(None, &Answer::refused(403, message));
                response.headers_mut().extend(retry_after.map(|seconds| (RETRY_AFTER, seconds.into())));
                response
            }
            // A gateway answers with a page for people.
            Trouble::Before(status @ (502 | 504)) | Trouble::After(status @ (502 | 504)) => {
                let mut response = Response::new(Bytes::from_static(b"<html><body>Unicorn!</body></html>"));
                *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
                response
            }
            Trouble::Before(status) | Trouble::After(status) => {
                self.rendered(None, &Answer::refused(status, "Server Error"))
            }
            Trouble::NoConnection
            | Trouble::LostRequest
            | Trouble::LostReply
            | Trouble::Hang
            | Trouble::HangAfter => return Err(Broken::Lost("connection reset".to_owned())),
        })
    }
}

/// One page of a list; only what is on it is put into shape.
fn listed<T>(
    asked: &Asked<'_>,
    repository: &Repository,
    items: Vec<T>,
    shape: impl Fn(T) -> Value,
) -> Answer {
    let (shown, link) = asked.paged(repository, items, DEFAULT_PAGE);
    Answer { link, ..Answer::new(200, shown.into_iter().map(shape).collect()) }
}

fn pulls<'a>(asked: &Asked<'_>, repository: &'a Repository) -> Vec<&'a Pull> {
    let state = asked.query("state").unwrap_or("open");
    let wanted = |pull: &&Pull| state == "all" || (state == "open") == pull.open;
    let mut pulls: Vec<&Pull> = repository.pulls.values().filter(wanted).collect();
    // Newest first, unless told otherwise.
    if asked.query("direction") != Some("asc") {
        pulls.reverse();
    }
    pulls
}

fn pull<'a>(repository: &'a Repository, number: &str) -> Option<&'a Pull> {
    repository.pulls.get(&number.parse().ok()?)
}

fn comments<'a>(asked: &Asked<'_>, repository: &'a Repository, under: Option<i64>) -> Vec<&'a Comment> {
    let since: Option<Timestamp> = asked.query("since").and_then(|since| since.parse().ok());
    let wanted = repository.comments.values().filter(|comment| {
        since.is_none_or(|since| comment.updated_at >= since)
            && under.is_none_or(|number| comment.number == number)
    });
    let mut comments: Vec<_> = wanted.collect();
    if asked.query("sort") == Some("updated") {
        comments.sort_by_key(|comment| (comment.updated_at, comment.id));
    }
    if asked.query("direction") == Some("desc") {
        comments.reverse();
    }
    comments
}
