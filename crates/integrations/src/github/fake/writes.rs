//! What do requests change? Check runs, commit statuses, comments, tokens; each is told to the journal.

use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::access::Caller;
use super::answers::Answer;
use super::asked::Asked;
use super::journal::Effect;
use super::shapes::{Shapes, time};
use super::world::{CheckRun, Role, Status, World};
use super::{INSTALLATION_ID, TOKEN_USER};

/// What the App is called where it comments.
const BOT: &str = "pawl[bot]";

/// Texts of a check run are at most so long.
const MAX_OUTPUT_CHARS: usize = 65_535;
const MAX_DESCRIPTION_CHARS: usize = 140;

const CONCLUSIONS: &[&str] =
    &["action_required", "cancelled", "failure", "neutral", "success", "skipped", "stale", "timed_out"];

impl World {
    pub(super) fn access_token(&mut self, caller: &Caller, installation: &str) -> Answer {
        if *caller != Caller::App {
            return Answer::refused(401, "A JSON web token could not be decoded");
        }
        if installation != INSTALLATION_ID.to_string() {
            return Answer::not_found();
        }
        if self.access.suspended {
            return Answer::refused(403, "This installation has been suspended");
        }
        let (token, expires_at) = self.access.mint(self.now());
        self.applied("", Effect::TokenMinted);
        let permissions =
            json!({"checks": "write", "contents": "read", "metadata": "read", "pull_requests": "write"});
        Answer::new(
            201,
            json!({"token": token, "expires_at": time(expires_at), "permissions": permissions,
                "repository_selection": "all"}),
        )
    }

    pub(super) fn write(
        &mut self,
        asked: &Asked<'_>,
        caller: &Caller,
        repository: i64,
        path: &[&str],
    ) -> Answer {
        let Some(home) = self.repositories.get(&repository) else { return Answer::not_found() };
        let may = match caller {
            Caller::App => false,
            Caller::Installation => home.installed && !self.access.suspended,
            Caller::User(login) => {
                login == TOKEN_USER || home.roles.get(login).copied().is_some_and(Role::may_push)
            }
        };
        if !may {
            return Answer::refused(403, "Resource not accessible by integration");
        }
        let Ok(body) = serde_json::from_slice::<Value>(asked.body) else {
            return Answer::refused(400, "Problems parsing JSON");
        };
        let is_post = *asked.method == Method::POST;
        match path {
            ["check-runs"] if is_post => self.create_check_run(asked, caller, repository, &body),
            ["check-runs", id] if *asked.method == Method::PATCH => match id.parse() {
                Ok(id) => self.update_check_run(asked, caller, repository, id, &body),
                Err(_) => Answer::not_found(),
            },
            ["statuses", sha] if is_post => self.create_status(asked, caller, repository, sha, &body),
            ["issues", number, "comments"] if is_post => {
                self.create_comment(asked, caller, repository, number, &body)
            }
            _ => Answer::not_found(),
        }
    }

    fn create_check_run(
        &mut self,
        asked: &Asked<'_>,
        caller: &Caller,
        repository: i64,
        body: &Value,
    ) -> Answer {
        if *caller != Caller::Installation {
            return Answer::refused(403, "You must authenticate via a GitHub App.");
        }
        let (Some(name), Some(sha)) = (text(body, "name"), text(body, "head_sha")) else {
            return Answer::invalid("CheckRun", "head_sha", "missing_field");
        };
        if self.objects.get(&sha).is_none() {
            return Answer::invalid("CheckRun", "head_sha", "invalid");
        }
        let mut run = CheckRun {
            id: self.next_id(),
            name,
            head_sha: sha,
            external_id: String::new(),
            status: "queued".to_owned(),
            conclusion: None,
            details_url: None,
            started_at: None,
            completed_at: None,
            title: None,
            summary: None,
            text: None,
        };
        if let Err(field) = change(&mut run, body, self.now()) {
            return Answer::invalid("CheckRun", field, "invalid");
        }
        let id = run.id;
        let effect = Effect::CheckRunCreated {
            id,
            external_id: run.external_id.clone(),
            name: run.name.clone(),
            sha: run.head_sha.clone(),
        };
        self.keep_check_run(asked, repository, run, effect, 201, "created")
    }

    fn update_check_run(
        &mut self,
        asked: &Asked<'_>,
        caller: &Caller,
        repository: i64,
        id: i64,
        body: &Value,
    ) -> Answer {
        if *caller != Caller::Installation {
            return Answer::refused(403, "You must authenticate via a GitHub App.");
        }
        let found = self.repositories.get(&repository).and_then(|home| home.check_runs.get(&id));
        let Some(mut run) = found.cloned() else { return Answer::not_found() };
        if let Err(field) = change(&mut run, body, self.now()) {
            return Answer::invalid("CheckRun", field, "invalid");
        }
        let effect = Effect::CheckRunUpdated {
            id,
            external_id: run.external_id.clone(),
            status: run.status.clone(),
            conclusion: run.conclusion.clone(),
        };
        let action = if run.status == "completed" { "completed" } else { "created" };
        self.keep_check_run(asked, repository, run, effect, 200, action)
    }

    fn keep_check_run(
        &mut self,
        asked: &Asked<'_>,
        repository: i64,
        run: CheckRun,
        effect: Effect,
        status: u16,
        action: &str,
    ) -> Answer {
        let id = run.id;
        let Some(home) = self.repositories.get_mut(&repository) else { return Answer::not_found() };
        home.check_runs.insert(id, run);
        let name = home.full_name();
        self.applied(&name, effect);
        self.meet(BOT);
        self.deliver_check_run(repository, id, action, BOT);
        let shapes = Shapes { world: self, api: &asked.api };
        let shown = self
            .repositories
            .get(&repository)
            .and_then(|home| home.check_runs.get(&id).map(|run| shapes.check_run(home, run)));
        shown.map_or_else(Answer::not_found, |shown| Answer::new(status, shown))
    }

    fn create_status(
        &mut self,
        asked: &Asked<'_>,
        caller: &Caller,
        repository: i64,
        sha: &str,
        body: &Value,
    ) -> Answer {
        if self.objects.get(sha).is_none() {
            return Answer::invalid("Status", "sha", "invalid");
        }
        let state =
            text(body, "state").filter(|s| ["error", "failure", "pending", "success"].contains(&s.as_str()));
        let Some(state) = state else { return Answer::invalid("Status", "state", "invalid") };
        let description = text(body, "description");
        if description.as_ref().is_some_and(|text| text.chars().count() > MAX_DESCRIPTION_CHARS) {
            return Answer::invalid("Status", "description", "invalid");
        }
        let creator = self.name_of(caller);
        let status = Status {
            id: self.next_id(),
            sha: sha.to_owned(),
            state,
            context: text(body, "context").unwrap_or_else(|| "default".to_owned()),
            description,
            target_url: text(body, "target_url"),
            creator,
            at: self.now(),
        };
        let Some(home) = self.repositories.get_mut(&repository) else { return Answer::not_found() };
        home.statuses.push(status.clone());
        let name = home.full_name();
        let effect = Effect::StatusSet {
            sha: status.sha.clone(),
            context: status.context.clone(),
            state: status.state.clone(),
        };
        self.applied(&name, effect);
        let shapes = Shapes { world: self, api: &asked.api };
        match self.repositories.get(&repository) {
            Some(home) => Answer::new(201, shapes.status(home, &status))
                .at(shapes.of(home, &format!("/statuses/{sha}"))),
            None => Answer::not_found(),
        }
    }

    fn create_comment(
        &mut self,
        asked: &Asked<'_>,
        caller: &Caller,
        repository: i64,
        number: &str,
        body: &Value,
    ) -> Answer {
        let Some(body) = text(body, "body") else {
            return Answer::invalid("IssueComment", "body", "missing_field");
        };
        let there = self.repositories.get(&repository).map(|home| (home.full_name(), home.last_number));
        let number = number.parse::<i64>().ok();
        let (Some((name, last)), Some(number)) = (there, number) else { return Answer::not_found() };
        if !(1..=last).contains(&number) {
            return Answer::not_found();
        }
        let author = self.name_of(caller);
        let id = self.comment(repository, number, &author, &body);
        self.applied(&name, Effect::Commented { number, id, body });
        let shapes = Shapes { world: self, api: &asked.api };
        let shown = self.repositories.get(&repository).and_then(|home| {
            home.comments.get(&id).map(|comment| {
                let location = shapes.of(home, &format!("/issues/comments/{id}"));
                Answer::new(201, shapes.comment(home, comment)).at(location)
            })
        });
        shown.unwrap_or_else(Answer::not_found)
    }

    fn name_of(&mut self, caller: &Caller) -> String {
        let name = match caller {
            Caller::App | Caller::Installation => BOT.to_owned(),
            Caller::User(login) => login.clone(),
        };
        self.meet(&name);
        name
    }
}

fn text(body: &Value, field: &str) -> Option<String> {
    body.get(field).and_then(Value::as_str).map(str::to_owned)
}

/// Puts into a check run what a body says; the name of the field that cannot be.
fn change(run: &mut CheckRun, body: &Value, now: Timestamp) -> Result<(), &'static str> {
    let moment = |field: &'static str| match body.get(field).and_then(Value::as_str) {
        Some(text) => text.parse::<Timestamp>().map(Some).map_err(|_| field),
        None => Ok(None),
    };
    run.name = text(body, "name").unwrap_or_else(|| run.name.clone());
    run.external_id = text(body, "external_id").unwrap_or_else(|| run.external_id.clone());
    run.details_url = text(body, "details_url").or_else(|| run.details_url.take());
    run.started_at = moment("started_at")?.or(run.started_at);
    if let Some(status) = text(body, "status") {
        if !["queued", "in_progress", "completed"].contains(&status.as_str()) {
            return Err("status");
        }
        run.status = status;
    }
    if let Some(conclusion) = text(body, "conclusion") {
        if !CONCLUSIONS.contains(&conclusion.as_str()) {
            return Err("conclusion");
        }
        // A conclusion completes a check run, whatever its status says.
        "completed".clone_into(&mut run.status);
        run.conclusion = Some(conclusion);
    }
    if run.status == "completed" {
        if run.conclusion.is_none() {
            return Err("conclusion");
        }
        run.completed_at = moment("completed_at")?.or(run.completed_at).or(Some(now));
    } else {
        run.conclusion = None;
        run.completed_at = None;
    }
    if let Some(output) = body.get("output") {
        for (field, into) in
            [("title", &mut run.title), ("summary", &mut run.summary), ("text", &mut run.text)]
        {
            let value = text(output, field);
            if value.as_ref().is_some_and(|value| value.chars().count() > MAX_OUTPUT_CHARS) {
                return Err("output");
            }
            *into = value.or_else(|| into.take());
        }
    }
    Ok(())
}
