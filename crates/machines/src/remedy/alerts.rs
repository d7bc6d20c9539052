//! What does a firing alert lead to? Alertmanager's webhook body in, RemediationRequests out.
//!
//! ```text
//! body ─▶ alerts ─▶ firing? ─▶ the playbooks that match, and whose namespace may act on the target
//!                               ─▶ the one of the highest priority ─▶ a request of a name that follows from the alert
//! ```
//! The name is made of the alert's fingerprint and of when it began, so that the same alert, sent as often as Alertmanager
//! likes, makes one request (I1, I7). Whatever an alert says is data: it names a target and fills parameters, and is never
//! expanded (I10).

use std::collections::BTreeMap;

use jiff::Timestamp;
use pawl_api::meta::{Kind, Reason, Target, names, text};
use pawl_api::pawl::labels::TARGET_HASH;
use pawl_api::remedy::remediation_playbook::{self, MatchOperator};
use pawl_api::remedy::remediation_request::{self, ActionStep, Signal, TargetResource};
use pawl_api::remedy::{RemediationPlaybook, RemediationPlaybookSpec, finalizers, labels};
use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::{Value, json};

use super::remediation_request::unfit;
use crate::cluster::namespace::{NAMESPACE, lets_in};
use crate::object::{Key, Object};
use crate::view::View;

/// How many alerts one notification may hold: what a large cluster sends when everything is down.
pub const MAX_ALERTS: usize = 20_000;

/// A regular expression may not become larger than this when it is compiled: enough for a list of hundreds of names.
const MAX_REGEX_BYTES: usize = 256 * 1024;

/// What a request keeps of an alert's labels and annotations; as the schema of its `signal` says.
const MAX_PAIRS: usize = 64;
const MAX_LABEL_CHARS: usize = 4096;
const MAX_ANNOTATION_CHARS: usize = 8192;

/// Who asks for what an alert leads to: nobody can have this name, so somebody else approves it, whoever that is.
pub const ALERTS: &str = "pawl:alerts";

/// On a RemediationRequest: the playbook that chose its plan.
const PLAYBOOK: &str = "pawl.dev/playbook";

/// Before the name of a label, in a parameter that becomes its value.
const LABEL_REFERENCE: &str = "$(labels.";

/// Those parameters of actions that name objects: an alert may say which one is meant. What is done to it (a patch, a
/// manifest, a value) is the playbook's word alone (I10).
const NAMING: [&str; 11] = [
    "namespace",
    "name",
    "deployment",
    "statefulset",
    "hpa",
    "pod",
    "node",
    "configMap",
    "secret",
    "pvc",
    "container",
];

/// One alert, as far as it was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    pub firing: bool,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub starts_at: Timestamp,
    pub fingerprint: String,
}

/// Why a body is no notification of Alertmanager.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("the body is not JSON: {0}")]
    NotJson(String),
    #[error("the body is not a notification of Alertmanager (webhook version 4): {0}")]
    NotANotification(String),
    #[error("a notification has at most {MAX_ALERTS} alerts; this one has {0}")]
    TooMany(usize),
}

/// What is done about an alert.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It is over.
    Resolved,
    /// No playbook is about it; why those that match are not used.
    Unmatched(Vec<String>),
    /// This RemediationRequest is made, unless it is there.
    Create { key: Key, manifest: Value },
}

/// A playbook that can be used.
#[derive(Debug)]
pub struct Playbook {
    key: Key,
    spec: RemediationPlaybookSpec,
    matchers: Vec<(String, Test)>,
}

#[derive(Debug)]
enum Test {
    Is(String),
    IsNot(String),
    Matches(Regex),
    MatchesNot(Regex),
}

#[derive(Deserialize)]
struct Notification {
    #[serde(default)]
    version: Option<String>,
    alerts: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenAlert {
    status: String,
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    starts_at: String,
    #[serde(default)]
    fingerprint: String,
}

/// Reads a notification. What is wrong with single alerts stands in their place.
///
/// # Errors
/// When the whole is none.
pub fn read(body: &[u8]) -> Result<Vec<Result<Alert, String>>, Unreadable> {
    let raw: Value = serde_json::from_slice(body).map_err(|error| Unreadable::NotJson(error.to_string()))?;
    let Notification { version, alerts } =
        Notification::deserialize(raw).map_err(|error| Unreadable::NotANotification(error.to_string()))?;
    if let Some(version) = version.filter(|version| version != "4") {
        return Err(Unreadable::NotANotification(format!("version is {version:?}")));
    }
    if alerts.len() > MAX_ALERTS {
        return Err(Unreadable::TooMany(alerts.len()));
    }
    Ok(alerts
        .into_iter()
        .enumerate()
        .map(|(at, raw)| read_alert(raw).map_err(|no| format!("alerts[{at}]: {no}")))
        .collect())
}

fn read_alert(raw: Value) -> Result<Alert, String> {
    let WrittenAlert { status, labels, annotations, starts_at, fingerprint } =
        WrittenAlert::deserialize(raw).map_err(|error| error.to_string())?;
    let firing = match status.as_str() {
        "firing" => true,
        "resolved" => false,
        other => return Err(format!("status is {other:?}; firing or resolved is allowed")),
    };
    let starts_at = starts_at.parse().map_err(|error| format!("startsAt: {error}"))?;
    let given = fingerprint.trim();
    let fingerprint = if given.is_empty() || given.len() > 128 || !names::is_label_value(given) {
        // The same labels are the same alert: so Alertmanager makes its own.
        let parts: Vec<&str> = labels.iter().flat_map(|(name, value)| [name.as_str(), value]).collect();
        names::hash(&parts, 16)
    } else {
        given.to_owned()
    };
    Ok(Alert { firing, labels, annotations, starts_at, fingerprint })
}

/// The playbooks that can be used, the one to be asked first first.
pub fn playbooks(view: &dyn View) -> Vec<Playbook> {
    let all = view.list(&remediation_playbook::KIND, None);
    let usable = all.iter().filter(|object| !object.is_deleting()).filter_map(|object| {
        let typed = object.parse::<RemediationPlaybook>().ok().filter(|typed| !typed.spec.suspend)?;
        Playbook::compile(object, &typed).ok()
    });
    let mut usable: Vec<Playbook> = usable.collect();
    usable.sort_by(|a, b| (-a.spec.priority, &a.key).cmp(&(-b.spec.priority, &b.key)));
    usable
}

/// What an alert leads to. `system_namespace` may act everywhere; others where namespaces let them.
pub fn answer(alert: &Alert, playbooks: &[Playbook], view: &dyn View, system_namespace: &str) -> Answer {
    if !alert.firing {
        return Answer::Resolved;
    }
    let mut unfit = Vec::new();
    for playbook in playbooks.iter().filter(|playbook| playbook.matches(&alert.labels)) {
        match playbook.request(alert, view, system_namespace) {
            Ok((key, manifest)) => return Answer::Create { key, manifest },
            Err(problem) => unfit.push(format!("playbook {}: {problem}", playbook.key)),
        }
    }
    Answer::Unmatched(unfit)
}

impl Playbook {
    /// # Errors
    /// Why it cannot be used.
    pub fn compile(object: &Object, playbook: &RemediationPlaybook) -> Result<Self, (Reason, String)> {
        let spec = playbook.spec.clone();
        if let Some(problem) = unfit(&spec.plan) {
            return Err(problem);
        }
        let compile = |at: usize, value: &str| {
            RegexBuilder::new(&format!("^(?:{value})$")).size_limit(MAX_REGEX_BYTES).build().map_err(
                |error| {
                    let too_big = matches!(error, regex::Error::CompiledTooBig(_));
                    let problem =
                        if too_big { "the expression is too big".to_owned() } else { error.to_string() };
                    (Reason::Invalid, format!("spec.matchers[{at}]: {problem}"))
                },
            )
        };
        let mut matchers = Vec::new();
        for (at, matcher) in spec.matchers.iter().enumerate() {
            let test = match matcher.operator {
                MatchOperator::Equal => Test::Is(matcher.value.clone()),
                MatchOperator::NotEqual => Test::IsNot(matcher.value.clone()),
                MatchOperator::Matches => Test::Matches(compile(at, &matcher.value)?),
                MatchOperator::NotMatches => Test::MatchesNot(compile(at, &matcher.value)?),
            };
            matchers.push((matcher.name.clone(), test));
        }
        if matchers.is_empty() {
            return Err((
                Reason::Invalid,
                "spec.matchers: there is none, so every alert would match".to_owned(),
            ));
        }
        Ok(Self { key: object.key(), spec, matchers })
    }

    /// As Alertmanager does it: a label that is not there is empty.
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matchers.iter().all(|(name, test)| {
            let value = labels.get(name).map(String::as_str).unwrap_or_default();
            match test {
                Test::Is(wanted) => value == wanted,
                Test::IsNot(unwanted) => value != unwanted,
                Test::Matches(wanted) => wanted.is_match(value),
                Test::MatchesNot(unwanted) => !unwanted.is_match(value),
            }
        })
    }

    fn request(
        &self,
        alert: &Alert,
        view: &dyn View,
        system_namespace: &str,
    ) -> Result<(Key, Value), String> {
        let label = |name: &str| {
            let value = alert.labels.get(name).filter(|value| !value.is_empty());
            value.cloned().ok_or_else(|| format!("the alert has no label {name}"))
        };
        let of = &self.spec.target;
        let target_resource = TargetResource {
            kind: of.kind.clone(),
            name: label(&of.name_label)?,
            namespace: of.namespace_label.as_deref().map(label).transpose()?,
            api_version: of.api_version.clone(),
        };
        let target = target_resource.target().map_err(|error| error.to_string())?;
        self.may_act_on(&target, view, system_namespace)?;
        let mut plan = self.spec.plan.clone();
        for step in &mut plan.steps {
            if let Some(workflow) = &mut step.workflow {
                fill(workflow.parameters.iter_mut(), &label)?;
            }
            if let Some(action) = &mut step.action {
                fill_names(action, &label).map_err(|problem| format!("step {}: {problem}", step.name))?;
            }
        }
        let alert_name = alert.labels.get("alertname").cloned().unwrap_or_else(|| "alert".to_owned());
        let started = alert.starts_at.to_string();
        let name = names::child(&alert_name, &[&alert.fingerprint, &started], 10, names::MAX_LABEL);
        let key = Key { namespace: self.key.namespace.clone(), name };
        let signal = Signal {
            severity: text::head(alert.labels.get("severity").cloned().unwrap_or_default(), 64),
            name: text::head(alert_name, 253),
            source: "alertmanager".to_owned(),
            fingerprint: alert.fingerprint.clone(),
            labels: kept(&alert.labels, MAX_LABEL_CHARS),
            annotations: kept(&alert.annotations, MAX_ANNOTATION_CHARS),
        };
        let manifest = json!({
            "apiVersion": remediation_request::KIND.api_version(), "kind": remediation_request::KIND.kind,
            "metadata": {
                "name": key.name, "namespace": key.namespace,
                "labels": {labels::FINGERPRINT: names::label_value(&alert.fingerprint), TARGET_HASH: target.short_hash()},
                "annotations": {PLAYBOOK: self.key.to_string()},
                "finalizers": [finalizers::REMEDIATION_REQUEST],
            },
            "spec": {
                "targetResource": target_resource, "signal": signal, "plan": plan,
                "requestedBy": ALERTS, "rollbackStrategy": self.spec.rollback_strategy, "timeouts": self.spec.timeouts,
                "dryRun": self.spec.dry_run,
            },
        });
        Ok((key, manifest))
    }

    /// Otherwise whoever can write a playbook anywhere would catch everybody's alerts.
    fn may_act_on(&self, target: &Target, view: &dyn View, system_namespace: &str) -> Result<(), String> {
        let home = self.key.namespace.as_deref().unwrap_or_default();
        let there = target.namespace();
        let lets =
            |namespace: &str| lets_in(view.get(&NAMESPACE, &Key::new(None, namespace)).as_deref(), home);
        match there {
            _ if home == system_namespace => Ok(()),
            Some(namespace) if namespace == home || lets(namespace) => Ok(()),
            Some(namespace) => Err(format!("the namespace {namespace} does not let {home} in")),
            None => Err(format!(
                "{target} belongs to no namespace; only playbooks in {system_namespace} may name it"
            )),
        }
    }
}

/// Puts labels where whole values refer to them.
fn fill<'a>(
    values: impl Iterator<Item = (&'a String, &'a mut String)>,
    label: &dyn Fn(&str) -> Result<String, String>,
) -> Result<(), String> {
    for (name, value) in values {
        if let Some(named) = value.strip_prefix(LABEL_REFERENCE).and_then(|rest| rest.strip_suffix(')')) {
            *value = label(named).map_err(|problem| format!("parameter {name}: {problem}"))?;
        }
    }
    Ok(())
}

/// The same, for those parameters of an action that name objects. Whether an object may be acted on, its execution asks.
fn fill_names(step: &mut ActionStep, label: &dyn Fn(&str) -> Result<String, String>) -> Result<(), String> {
    let mut union = serde_json::to_value(&step.parameters).map_err(|error| error.to_string())?;
    let Some(fields) = union.get_mut(step.action.member()).and_then(Value::as_object_mut) else {
        return Ok(());
    };
    for (name, value) in fields.iter_mut().filter(|(name, _)| NAMING.contains(&name.as_str())) {
        if let Value::String(text) = value {
            fill(std::iter::once((name, text)), label)?;
        }
    }
    step.parameters = serde_json::from_value(union).map_err(|error| error.to_string())?;
    Ok(())
}

fn kept(pairs: &BTreeMap<String, String>, max: usize) -> BTreeMap<String, String> {
    let kept =
        pairs.iter().take(MAX_PAIRS).map(|(name, value)| (name.clone(), text::head(value.as_str(), max)));
    kept.collect()
}

/// The kinds that must be known before an alert can be answered.
pub fn needs() -> [Kind; 2] {
    [remediation_playbook::KIND, NAMESPACE]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::World;

    fn playbook(namespace: &str, name: &str, priority: i32, matchers: &Value) -> (Kind, Value) {
        let step = json!({"name": "a", "workflow": {"workflowRef": {"workflowId": name, "containerImage": "i"},
            "parameters": {"POD": "$(labels.pod)", "PLAIN": "x$(labels.pod)"}}});
        let spec = json!({"matchers": matchers, "priority": priority, "plan": {"steps": [step]},
            "target": {"kind": "Deployment", "nameLabel": "deployment", "namespaceLabel": "namespace"}});
        (
            remediation_playbook::KIND,
            json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec}),
        )
    }

    fn alert(labels: &Value) -> Value {
        json!({"status": "firing", "labels": labels, "annotations": {"summary": "down"},
            "startsAt": "2026-01-01T00:00:00.123Z", "endsAt": "0001-01-01T00:00:00Z", "fingerprint": "abc123"})
    }

    fn crash() -> Value {
        alert(
            &json!({"alertname": "Crash", "severity": "critical", "namespace": "prod", "deployment": "web", "pod": "web-1"}),
        )
    }

    fn notification(alerts: &[Value]) -> Vec<u8> {
        json!({"version": "4", "groupKey": "g", "status": "firing", "receiver": "pawl", "alerts": alerts})
            .to_string()
            .into_bytes()
    }

    fn by_name() -> Value {
        json!([{"name": "alertname", "value": "Crash"}])
    }

    fn ask(playbooks: Vec<(Kind, Value)>, raw: &Value) -> Answer {
        let world = World::of(playbooks).unwrap();
        let alert = read(&notification(std::slice::from_ref(raw))).unwrap().remove(0).unwrap();
        answer(&alert, &super::playbooks(&world), &world, "pawl-system")
    }

    /// Which workflow an alert leads to.
    fn check(playbooks: Vec<(Kind, Value)>, raw: &Value, expect: Option<&str>) {
        let found = match ask(playbooks, raw) {
            Answer::Create { manifest, .. } => manifest
                .pointer("/spec/plan/steps/0/workflow/workflowRef/workflowId")
                .and_then(Value::as_str)
                .map(str::to_owned),
            Answer::Resolved | Answer::Unmatched(_) => None,
        };
        assert_eq!(found.as_deref(), expect);
    }

    #[test]
    fn a_firing_alert_becomes_a_request_with_its_target_signal_and_parameters() {
        let Answer::Create { key, manifest } =
            ask(vec![playbook("prod", "restart", 0, &by_name())], &crash())
        else {
            panic!()
        };
        assert!(key.name.starts_with("crash-") && key.namespace.as_deref() == Some("prod"));
        let spec = &manifest["spec"];
        assert_eq!(spec["targetResource"], json!({"kind": "Deployment", "name": "web", "namespace": "prod"}));
        assert_eq!(
            (&spec["signal"]["name"], &spec["signal"]["severity"]),
            (&json!("Crash"), &json!("critical"))
        );
        assert_eq!(spec["signal"]["fingerprint"], "abc123");
        let parameters = &spec["plan"]["steps"][0]["workflow"]["parameters"];
        assert_eq!(
            *parameters,
            json!({"POD": "web-1", "PLAIN": "x$(labels.pod)"}),
            "only a whole reference is one"
        );
        serde_json::from_value::<pawl_api::remedy::RemediationRequest>(manifest.clone()).unwrap();
    }

    #[test]
    fn i10_an_alert_says_which_object_an_action_is_about_and_never_what_is_done_to_it() {
        let mut book = playbook("prod", "p", 0, &by_name());
        book.1["spec"]["plan"]["steps"] = json!([
            {"name": "scale", "action": {"action": "scale_deployment", "parameters": {"scaleDeployment":
                {"namespace": "$(labels.namespace)", "deployment": "$(labels.deployment)", "replicas": 3}}}},
            {"name": "patch", "action": {"action": "patch_deployment", "parameters": {"patchDeployment":
                {"namespace": "prod", "deployment": "x$(labels.deployment)", "patch": "$(labels.pod)"}}}},
        ]);
        let Answer::Create { manifest, .. } = ask(vec![book.clone()], &crash()) else { panic!() };
        let parameters = |at: usize| manifest["spec"]["plan"]["steps"][at]["action"]["parameters"].clone();
        assert_eq!(
            parameters(0),
            json!({"scaleDeployment": {"namespace": "prod", "deployment": "web", "replicas": 3}})
        );
        let patch = &parameters(1)["patchDeployment"];
        assert_eq!(
            (&patch["deployment"], &patch["patch"]),
            (&json!("x$(labels.deployment)"), &json!("$(labels.pod)")),
            "only a whole reference is one, and a patch is none"
        );
        book.1["spec"]["plan"]["steps"][0]["action"]["parameters"]["scaleDeployment"]["deployment"] =
            json!("$(labels.absent)");
        let Answer::Unmatched(why) = ask(vec![book], &crash()) else { panic!() };
        assert!(
            why[0].contains("step scale: parameter deployment: the alert has no label absent"),
            "{why:?}"
        );
    }

    #[test]
    fn the_same_alert_has_the_same_name_and_a_later_one_another() {
        let name = |raw: &Value| match ask(vec![playbook("prod", "p", 0, &by_name())], raw) {
            Answer::Create { key, .. } => key.name,
            other @ Answer::Resolved | other @ Answer::Unmatched(_) => panic!("{other:?}"),
        };
        let mut again = crash();
        again["annotations"]["summary"] = json!("still down");
        assert_eq!(name(&crash()), name(&again));
        again["startsAt"] = json!("2026-01-02T00:00:00Z");
        assert_ne!(name(&crash()), name(&again));
    }

    #[test]
    fn matchers_compare_as_alertmanager_s_do() {
        let with = |matchers: Value| vec![playbook("prod", "p", 0, &matchers)];
        check(with(by_name()), &crash(), Some("p"));
        check(with(json!([{"name": "alertname", "operator": "!=", "value": "Crash"}])), &crash(), None);
        check(
            with(json!([{"name": "alertname", "operator": "=~", "value": "Cra.*|Other"}])),
            &crash(),
            Some("p"),
        );
        check(with(json!([{"name": "alertname", "operator": "=~", "value": "Cra"}])), &crash(), None);
        check(with(json!([{"name": "alertname", "operator": "!~", "value": "Crash"}])), &crash(), None);
        check(with(json!([{"name": "team", "value": ""}])), &crash(), Some("p"));
        check(with(json!([{"name": "team", "operator": "=~", "value": ".+"}])), &crash(), None);
    }

    #[test]
    fn the_highest_priority_wins_then_the_first_by_name() {
        let all = || {
            vec![
                playbook("prod", "a", 0, &by_name()),
                playbook("prod", "b", 5, &by_name()),
                playbook("prod", "c", 5, &by_name()),
            ]
        };
        check(all(), &crash(), Some("b"));
        let mut suspended = all();
        suspended[1].1["spec"]["suspend"] = json!(true);
        check(suspended, &crash(), Some("c"));
    }

    #[test]
    fn a_playbook_catches_only_what_its_namespace_may_act_on() {
        check(vec![playbook("thief", "p", 1000, &by_name())], &crash(), None);
        check(
            vec![playbook("thief", "p", 1000, &by_name()), playbook("prod", "q", 0, &by_name())],
            &crash(),
            Some("q"),
        );
        let open =
            (NAMESPACE, json!({"metadata": {"name": "prod", "labels": {"pawl.dev/allow-from": "ops"}}}));
        check(vec![playbook("ops", "p", 1, &by_name()), open], &crash(), Some("p"));
        check(vec![playbook("pawl-system", "p", 1, &by_name())], &crash(), Some("p"));
    }

    #[test]
    fn a_resolved_alert_and_one_without_its_labels_lead_to_nothing_and_say_so() {
        let mut over = crash();
        over["status"] = json!("resolved");
        assert_eq!(ask(vec![playbook("prod", "p", 0, &by_name())], &over), Answer::Resolved);
        let bare = alert(&json!({"alertname": "Crash", "namespace": "prod"}));
        let Answer::Unmatched(why) = ask(vec![playbook("prod", "p", 0, &by_name())], &bare) else { panic!() };
        assert!(why[0].contains("no label deployment"), "{why:?}");
        let evil =
            alert(&json!({"alertname": "Crash", "namespace": "prod", "deployment": "a/../b", "pod": "x"}));
        let Answer::Unmatched(why) = ask(vec![playbook("prod", "p", 0, &by_name())], &evil) else { panic!() };
        assert!(why[0].contains("a/../b"), "{why:?}");
    }

    #[test]
    fn malformed_bodies_get_clear_answers() {
        let says = |body: &[u8]| read(body).unwrap_err().to_string();
        assert!(says(b"{").contains("not JSON"));
        assert!(says(b"[]").contains("not a notification"));
        assert!(says(b"{\"alerts\": {}}").contains("not a notification"));
        assert!(says(b"{\"version\": \"3\", \"alerts\": []}").contains("version is \"3\""));
        let many = notification(&vec![json!({}); MAX_ALERTS + 1]);
        assert!(says(&many).contains("at most 20000"));
        let mixed = read(&notification(&[
            crash(),
            json!({"status": "firing"}),
            json!({"status": "x", "labels": {}, "startsAt": "y"}),
            json!(7),
        ]))
        .unwrap();
        assert!(mixed[0].is_ok());
        assert!(mixed[1].as_ref().unwrap_err().starts_with("alerts[1]: missing field"));
        assert!(mixed[2].as_ref().unwrap_err().contains("firing or resolved"));
        assert!(mixed[3].is_err());
    }

    #[test]
    fn an_alert_of_any_size_fits_a_request() {
        let mut labels: BTreeMap<String, String> =
            (0..500).map(|n| (format!("l{n}"), "v".repeat(10_000))).collect();
        for (name, value) in [
            ("alertname", "A".repeat(5_000)),
            ("namespace", "prod".into()),
            ("deployment", "web".into()),
            ("pod", "x".into()),
        ] {
            labels.insert(name.to_owned(), value);
        }
        let mut raw = alert(&json!(labels));
        raw["fingerprint"] = json!("not a label value / at all");
        let any = json!([{"name": "namespace", "value": "prod"}]);
        let Answer::Create { key, manifest } = ask(vec![playbook("prod", "p", 0, &any)], &raw) else {
            panic!()
        };
        assert!(key.name.len() <= 63);
        assert_eq!(manifest["spec"]["signal"]["labels"].as_object().unwrap().len(), MAX_PAIRS);
        assert_eq!(manifest["spec"]["signal"]["fingerprint"].as_str().unwrap().len(), 16);
    }
}
