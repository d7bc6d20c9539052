//! Which webhooks would GitHub send? Signed, and kept until somebody takes them to where they belong.

use bytes::Bytes;
use http::{Request, Uri};
use serde_json::{Value, json};

use super::shapes::Shapes;
use super::world::World;
use super::{APP_ID, INSTALLATION_ID, WEBHOOK_SECRET};
use crate::github::webhook;

/// Deliveries kept for whoever takes them; GitHub drops what it cannot deliver, too.
const MAX_DELIVERIES: usize = 10_000;
/// Where a delivery's links point: nobody asked, so there is no host to take them from.
const API: &str = "https://api.github.example";
const NO_COMMIT: &str = "0000000000000000000000000000000000000000";

/// One webhook, as it would arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// `X-GitHub-Delivery`.
    pub id: String,
    /// `X-GitHub-Event`.
    pub event: &'static str,
    /// `X-Hub-Signature-256`.
    pub signature: String,
    pub body: Bytes,
}

impl Delivery {
    /// The request that carries it.
    ///
    /// # Errors
    /// When the address is not one.
    pub fn request(&self, to: Uri) -> Result<Request<Bytes>, http::Error> {
        Request::post(to)
            .header("content-type", "application/json")
            .header("user-agent", "GitHub-Hookshot/fake")
            .header("x-github-event", self.event)
            .header("x-github-delivery", &self.id)
            .header("x-hub-signature-256", &self.signature)
            .body(self.body.clone())
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum PullAction {
    Opened,
    Synchronize,
    Closed,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum CommentAction {
    Created,
    Edited,
}

impl World {
    pub(super) fn take_deliveries(&mut self) -> Vec<Delivery> {
        self.deliveries.drain(..).collect()
    }

    pub(super) fn deliver_push(
        &mut self,
        repository: i64,
        branch: &str,
        before: Option<&str>,
        after: Option<&str>,
        by: &str,
    ) {
        let commits = match (before, after) {
            (Some(before), Some(after)) => self.objects.log(before, after),
            (None, Some(after)) => self.objects.get(after).into_iter().collect(),
            (_, None) => Vec::new(),
        };
        let forced = before.zip(after).is_some_and(|(before, after)| {
            self.objects.merge_base(before, after).is_none_or(|base| base.sha != before)
        });
        let shapes = Shapes { world: self, api: API };
        let commits: Vec<Value> = commits.into_iter().map(|commit| shapes.pushed_commit(commit)).collect();
        let payload = json!({
            "ref": format!("refs/heads/{branch}"),
            "before": before.unwrap_or(NO_COMMIT),
            "after": after.unwrap_or(NO_COMMIT),
            "created": before.is_none(),
            "deleted": after.is_none(),
            "forced": forced,
            "base_ref": null,
            "compare": format!("{API}/compare"),
            "head_commit": commits.last(),
            "commits": commits,
            "pusher": {"name": by, "email": format!("{by}@users.noreply.example")},
        });
        self.deliver("push", repository, by, payload);
    }

    pub(super) fn deliver_pull(&mut self, repository: i64, number: i64, action: PullAction) {
        let action = match action {
            PullAction::Opened => "opened",
            PullAction::Synchronize => "synchronize",
            PullAction::Closed => "closed",
        };
        let Some(home) = self.repositories.get(&repository) else { return };
        let Some(pull) = home.pulls.get(&number) else { return };
        let by = pull.author.clone();
        let shown = Shapes { world: self, api: API }.pull(home, pull, true);
        self.deliver(
            "pull_request",
            repository,
            &by,
            json!({"action": action, "number": number, "pull_request": shown}),
        );
    }

    pub(super) fn deliver_comment(&mut self, repository: i64, id: i64, action: CommentAction) {
        let action = match action {
            CommentAction::Created => "created",
            CommentAction::Edited => "edited",
        };
        let Some(home) = self.repositories.get(&repository) else { return };
        let Some(comment) = home.comments.get(&id) else { return };
        let by = comment.author.clone();
        let shapes = Shapes { world: self, api: API };
        let mut issue = json!({"number": comment.number, "state": "open", "user": shapes.user(&by)});
        if let (true, Some(issue)) = (home.pulls.contains_key(&comment.number), issue.as_object_mut()) {
            let url = shapes.of(home, &format!("/pulls/{}", comment.number));
            issue.insert("pull_request".to_owned(), json!({"url": url}));
        }
        let shown = shapes.comment(home, comment);
        self.deliver(
            "issue_comment",
            repository,
            &by,
            json!({"action": action, "issue": issue, "comment": shown}),
        );
    }

    /// GitHub tells an App of its own check runs, too.
    pub(super) fn deliver_check_run(&mut self, repository: i64, id: i64, action: &str, by: &str) {
        let Some(home) = self.repositories.get(&repository) else { return };
        let Some(run) = home.check_runs.get(&id) else { return };
        let shown = Shapes { world: self, api: API }.check_run(home, run);
        self.deliver("check_run", repository, by, json!({"action": action, "check_run": shown}));
    }

    pub(super) fn deliver_rerun(&mut self, repository: i64, check_run: i64, by: &str) {
        self.deliver_check_run(repository, check_run, "rerequested", by);
    }

    pub(super) fn deliver_suite_rerun(&mut self, repository: i64, sha: &str, by: &str) {
        let suite = json!({"id": super::shapes::suite_id(sha), "head_sha": sha, "status": "completed",
            "conclusion": null, "app": {"id": APP_ID}});
        self.deliver("check_suite", repository, by, json!({"action": "rerequested", "check_suite": suite}));
    }

    /// Adds what every payload has, signs it and keeps it. Where the App is not installed, it hears nothing.
    fn deliver(&mut self, event: &'static str, repository: i64, sender: &str, mut payload: Value) {
        let Some(home) = self.repositories.get(&repository).filter(|home| home.installed) else { return };
        let shapes = Shapes { world: self, api: API };
        let (home, sender) = (shapes.repository(home), shapes.user(sender));
        if let Some(payload) = payload.as_object_mut() {
            payload.insert("repository".to_owned(), home);
            payload.insert("sender".to_owned(), sender);
            payload.insert("installation".to_owned(), json!({"id": INSTALLATION_ID, "node_id": "fake"}));
        }
        self.delivered += 1;
        let id = format!("00000000-0000-4000-8000-{:012x}", self.delivered);
        let body = Bytes::from(payload.to_string());
        let signature = webhook::sign(WEBHOOK_SECRET.as_bytes(), &body);
        if self.deliveries.len() == MAX_DELIVERIES {
            self.deliveries.pop_front();
        }
        self.deliveries.push_back(Delivery { id, event, signature, body });
    }
}
