//! Does what is asked and answered fit GitHub's own description of its API?
//!
//! `data/github-openapi.json` is cut from GitHub's OpenAPI description by the script beside it. [`checked`] wraps a
//! transport, as a rule the fake's: whatever passes is held against it, both ways, and what does not fit is remembered
//! with the operation's name. Tests and simulations fail on it; the demo runs without.
//!
//! Stricter than the description in one thing: fields and parameters that it does not know are findings too, for
//! they are what a slip in our spelling looks like.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request, Response};
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::github::client::lock;
use crate::transport::{Broken, Transport};

/// What GitHub says of the operations we use.
const DESCRIPTION: &str = include_str!("../../../data/github-openapi.json");

/// Where GitHub answers `null` though its description says it never does: the repository of a pull request's head,
/// once the fork is deleted (its webhooks' description has it right).
const NULL_ALL_THE_SAME: &[(&str, &str)] = &[("pulls/list", ".head.repo"), ("pulls/get", ".head.repo")];

/// Something that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// GitHub's name of the operation, or what was asked where there is none.
    pub operation: String,
    pub problem: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.operation, self.problem)
    }
}

/// What was found so far. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Findings(Arc<Mutex<Vec<Finding>>>);

impl Findings {
    pub fn all(&self) -> Vec<Finding> {
        lock(&self.0).clone()
    }
}

/// The same transport, watched.
pub fn checked(transport: Transport) -> (Transport, Findings) {
    let findings = Findings::default();
    (Transport::new(Checked { transport, findings: findings.clone() }), findings)
}

#[derive(Clone)]
struct Checked {
    transport: Transport,
    findings: Findings,
}

impl tower::Service<Request<Bytes>> for Checked {
    type Response = Response<Bytes>;
    type Error = Broken;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Response<Bytes>, Broken>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        self.transport.poll_ready(context)
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let operation = Operation::of(request.method(), request.uri().path());
        let findings = self.findings.clone();
        let mut problems = Vec::new();
        let name = match &operation {
            Some(operation) => {
                operation.check_request(&request, &mut problems);
                operation.id().to_owned()
            }
            None => {
                problems.push("GitHub has no such operation, or it is not among those we use".to_owned());
                format!("{} {}", request.method(), request.uri().path())
            }
        };
        let answer = self.transport.call(request);
        Box::pin(async move {
            let answer = answer.await;
            if let (Some(operation), Ok(answer)) = (operation, &answer) {
                operation.check_answer(answer, &mut problems);
            }
            let found = problems.into_iter().map(|problem| Finding { operation: name.clone(), problem });
            lock(&findings.0).extend(found);
            answer
        })
    }
}

/// One operation of the description, with what stood in the places of its path.
struct Operation {
    description: &'static Description,
    what: &'static Value,
    in_path: BTreeMap<String, String>,
}

struct Description(Value);

impl Description {
    fn get() -> &'static Self {
        static PARSED: OnceLock<Description> = OnceLock::new();
        // A file that is not JSON describes no operation, so that every request is a finding.
        PARSED.get_or_init(|| Self(serde_json::from_str(DESCRIPTION).unwrap_or_default()))
    }

    fn resolved<'a>(&'a self, value: &'a Value) -> &'a Value {
        let reference = value.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix('#'));
        match reference {
            Some(path) => self.0.pointer(path).unwrap_or(&Value::Null),
            None => value,
        }
    }
}

impl Operation {
    fn of(method: &Method, path: &str) -> Option<Self> {
        let description = Description::get();
        let path = path.strip_prefix("/api/v3").unwrap_or(path);
        let mut segments: Vec<&str> = path.split('/').collect();
        // Links to other pages name a repository by its id; it is the same operation.
        if let ["", "repositories", id, ..] = *segments.as_slice() {
            segments.splice(1..3, ["repos", "by-id", id]);
        }
        let paths = description.0.get("paths").and_then(Value::as_object)?;
        let mut fitting = paths.iter().filter_map(|(template, methods)| {
            let what = methods.get(method.as_str().to_ascii_lowercase())?;
            Some((
                template.matches('{').count(),
                Self { description, what, in_path: fits(template, &segments)? },
            ))
        });
        let first = fitting.next()?;
        // `/issues/comments` is not the issue called "comments".
        Some(fitting.fold(first, |best, other| if other.0 < best.0 { other } else { best }).1)
    }

    fn id(&self) -> &'static str {
        self.what.get("operationId").and_then(Value::as_str).unwrap_or("an operation without a name")
    }

    fn check_request(&self, request: &Request<Bytes>, problems: &mut Vec<String>) {
        for header in ["authorization", "user-agent", "accept"] {
            if !request.headers().contains_key(header) {
                problems.push(format!("request: no `{header}`"));
            }
        }
        self.check_parameters(request, problems);
        let schema = self.what.pointer("/requestBody/content/application~1json/schema");
        let required = self.what.pointer("/requestBody/required") == Some(&Value::Bool(true));
        match (schema, request.body().is_empty()) {
            (None, true) => {}
            (None, false) => problems.push("request: a body where none belongs".to_owned()),
            (Some(_), true) if required => problems.push("request: no body".to_owned()),
            (Some(_), true) => {}
            (Some(schema), false) => match serde_json::from_slice(request.body()) {
                Ok(body) => self.check(schema, &body, "request", problems),
                Err(error) => problems.push(format!("request: not JSON: {error}")),
            },
        }
    }

    fn check_parameters(&self, request: &Request<Bytes>, problems: &mut Vec<String>) {
        let uri = request.uri();
        let asked = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let mut asked: BTreeMap<&str, &str> =
            asked.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect();
        let declared =
            self.what.get("parameters").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for parameter in declared.iter().map(|parameter| self.description.resolved(parameter)) {
            let text = |field: &str| parameter.get(field).and_then(Value::as_str).unwrap_or_default();
            let name = text("name");
            let given = match text("in") {
                "path" => self.in_path.get(name).map(String::as_str),
                "query" => asked.remove(name),
                _ => continue,
            };
            let required = parameter.get("required") == Some(&Value::Bool(true));
            match (given, parameter.get("schema")) {
                (None, _) if required => problems.push(format!("request: no parameter `{name}`")),
                (Some(given), Some(schema)) => {
                    let value = typed(schema, &given.replace("%3A", ":").replace("%2F", "/"));
                    self.check(schema, &value, &format!("parameter {name}"), problems);
                }
                (None, _) | (Some(_), None) => {}
            }
        }
        problems.extend(asked.keys().map(|name| format!("request: no such parameter: `{name}`")));
    }

    fn check_answer(&self, answer: &Response<Bytes>, problems: &mut Vec<String>) {
        let status = answer.status().as_u16();
        // A gateway's page is nobody's promise, and "nothing new" says nothing.
        if status >= 500 {
            return;
        }
        if status == 304 {
            if !answer.body().is_empty() {
                problems.push("answer 304: a body".to_owned());
            }
            return;
        }
        let responses = self.what.get("responses");
        let response =
            responses.and_then(|all| all.get(status.to_string())).map(|one| self.description.resolved(one));
        let schema = match response {
            Some(response) => response.pointer("/content/application~1json/schema"),
            // Limits, credentials and slips are refused alike everywhere, and not described everywhere.
            None if status >= 400 => self.description.0.pointer("/components/schemas/basic-error"),
            None => return problems.push(format!("answer: GitHub does not answer {status}")),
        };
        let (Some(schema), Ok(body)) = (schema, serde_json::from_slice(answer.body())) else {
            return problems.push(format!("answer {status}: not JSON"));
        };
        // The same answer has two shapes, by what is wrong.
        let plain = self.description.0.pointer("/components/schemas/basic-error").filter(|_| status == 422);
        if plain.is_some_and(|plain| self.problems(plain, &body, "answer").is_empty()) {
            return;
        }
        self.check(schema, &body, &format!("answer {status}"), problems);
    }

    fn problems(&self, schema: &Value, value: &Value, at: &str) -> Vec<String> {
        let mut problems = Vec::new();
        self.check(schema, value, at, &mut problems);
        problems
    }

    fn check(&self, schema: &Value, value: &Value, at: &str, problems: &mut Vec<String>) {
        let schema = self.description.resolved(schema);
        let null_is_fine = NULL_ALL_THE_SAME.iter().any(|(id, end)| *id == self.id() && at.ends_with(end));
        if value.is_null() && (schema.get("nullable") == Some(&Value::Bool(true)) || null_is_fine) {
            return;
        }
        if let Some(words) = schema.get("enum").and_then(Value::as_array)
            && !words.contains(value)
        {
            problems.push(format!("{at}: {value} is none of {}", Value::Array(words.clone())));
        }
        self.check_choices(schema, value, at, problems);
        let fits = match (schema.get("type").and_then(Value::as_str), value) {
            (None, _) => true,
            (Some("string"), Value::String(text)) => {
                check_text(schema, text, at, problems);
                true
            }
            (Some("integer"), Value::Number(number)) => {
                check_number(schema, number, at, problems);
                number.is_i64() || number.is_u64()
            }
            (Some("number"), Value::Number(_)) | (Some("boolean"), Value::Bool(_)) => true,
            (Some("array"), Value::Array(items)) => {
                self.check_items(schema, items, at, problems);
                true
            }
            (Some("object"), Value::Object(_)) => true,
            (Some(_), _) => false,
        };
        if !fits {
            problems.push(format!(
                "{at}: {} is no {}",
                brief(value),
                schema.get("type").unwrap_or(&Value::Null)
            ));
        }
        if let Value::Object(object) = value {
            self.check_fields(schema, object, at, problems);
        }
    }

    fn check_choices(&self, schema: &Value, value: &Value, at: &str, problems: &mut Vec<String>) {
        let fitting = |choices: &Vec<Value>| {
            choices.iter().filter(|choice| self.problems(choice, value, at).is_empty()).count()
        };
        if let Some(choices) = schema.get("oneOf").and_then(Value::as_array)
            && fitting(choices) != 1
        {
            problems.push(format!("{at}: {} fits {} of its forms, not one", brief(value), fitting(choices)));
        }
        if let Some(choices) = schema.get("anyOf").and_then(Value::as_array)
            && fitting(choices) == 0
        {
            problems.push(format!("{at}: {} fits none of its forms", brief(value)));
        }
    }

    fn check_items(&self, schema: &Value, items: &[Value], at: &str, problems: &mut Vec<String>) {
        if limit(schema, "maxItems").is_some_and(|most| items.len() > most) {
            problems.push(format!("{at}: {} items", items.len()));
        }
        for (index, item) in items.iter().enumerate() {
            if let Some(schema) = schema.get("items") {
                self.check(schema, item, &format!("{at}[{index}]"), problems);
            }
        }
    }

    fn check_fields(
        &self,
        schema: &Value,
        object: &Map<String, Value>,
        at: &str,
        problems: &mut Vec<String>,
    ) {
        let required =
            schema.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let missing = required.iter().filter_map(Value::as_str).filter(|field| !object.contains_key(*field));
        problems.extend(missing.map(|field| format!("{at}: no `{field}`")));
        let properties = schema.get("properties").and_then(Value::as_object);
        let others = schema.get("additionalProperties");
        for (field, value) in object {
            let at = format!("{at}.{field}");
            match (properties.and_then(|properties| properties.get(field)), others) {
                (Some(schema), _) => self.check(schema, value, &at, problems),
                (None, Some(Value::Object(_))) => {
                    self.check(others.unwrap_or(&Value::Null), value, &at, problems);
                }
                (None, Some(Value::Bool(true))) => {}
                (None, Some(_)) => problems.push(format!("{at}: no such field")),
                (None, None) if properties.is_some() => problems.push(format!("{at}: no such field")),
                (None, None) => {}
            }
        }
    }
}

/// What stands in the places of a path, if it is one of this form.
fn fits(template: &str, segments: &[&str]) -> Option<BTreeMap<String, String>> {
    let template: Vec<&str> = template.split('/').collect();
    let mut places = BTreeMap::new();
    for (form, segment) in template.iter().zip(segments) {
        match form.strip_prefix('{').and_then(|form| form.strip_suffix('}')) {
            Some(name) if !segment.is_empty() => {
                places.insert(name.to_owned(), (*segment).to_owned());
            }
            Some(_) => return None,
            None if form == segment => {}
            None => return None,
        }
    }
    (template.len() == segments.len()).then_some(places)
}

/// A parameter is text; what it should be says its schema.
fn typed(schema: &Value, text: &str) -> Value {
    let as_text = || Value::String(text.to_owned());
    match schema.get("type").and_then(Value::as_str) {
        Some("integer") => text.parse::<i64>().map_or_else(|_| as_text(), Value::from),
        Some("boolean") => text.parse::<bool>().map_or_else(|_| as_text(), Value::from),
        _ => as_text(),
    }
}

fn check_text(schema: &Value, text: &str, at: &str, problems: &mut Vec<String>) {
    if limit(schema, "maxLength").is_some_and(|most| text.chars().count() > most) {
        problems.push(format!("{at}: {} characters", text.chars().count()));
    }
    let fits = match schema.get("format").and_then(Value::as_str) {
        Some("date-time") => text.parse::<Timestamp>().is_ok(),
        Some("uri") => {
            text.parse::<http::Uri>().is_ok_and(|uri| uri.scheme().is_some() && uri.host().is_some())
        }
        _ => true,
    };
    if !fits {
        problems.push(format!("{at}: {text:?} is no {}", schema.get("format").unwrap_or(&Value::Null)));
    }
}

fn check_number(schema: &Value, number: &serde_json::Number, at: &str, problems: &mut Vec<String>) {
    let bound = |word: &str| schema.get(word).and_then(Value::as_f64);
    let value = number.as_f64().unwrap_or(f64::NAN);
    if bound("minimum").is_some_and(|least| value < least)
        || bound("maximum").is_some_and(|most| value > most)
    {
        problems.push(format!("{at}: {number} is out of bounds"));
    }
}

fn limit(schema: &Value, word: &str) -> Option<usize> {
    schema.get(word).and_then(Value::as_u64).and_then(|limit| usize::try_from(limit).ok())
}

fn brief(value: &Value) -> String {
    value.to_string().chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn operation(method: &Method, path: &str) -> Operation {
        Operation::of(method, path).expect(path)
    }

    fn asked(method: &Method, target: &str, body: &Value) -> Vec<String> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = Request::builder().method(method).uri(target).header("authorization", "Bearer x");
        let request =
            request.header("user-agent", "t").header("accept", "*/*").body(body.into()).expect("a request");
        let mut problems = Vec::new();
        operation(method, request.uri().path()).check_request(&request, &mut problems);
        problems
    }

    fn answered(method: &Method, path: &str, status: u16, body: &Value) -> Vec<String> {
        let answer = Response::builder().status(status).body(body.to_string().into()).expect("an answer");
        let mut problems = Vec::new();
        operation(method, path).check_answer(&answer, &mut problems);
        problems
    }

    const RUNS: &str = "/repos/o/r/check-runs";

    #[test]
    fn operations_are_found_by_method_and_path_whatever_a_repository_is_called() {
        for (method, path, id) in [
            (Method::GET, "/repos/o/r", "repos/get"),
            (Method::GET, "/api/v3/repos/o/.github/branches", "repos/list-branches"),
            (Method::GET, "/repositories/7/branches", "repos/list-branches"),
            (Method::GET, "/repos/o/r/issues/comments", "issues/list-comments-for-repo"),
            (Method::GET, "/repos/o/r/issues/3/comments", "issues/list-comments"),
            (Method::PATCH, "/repos/o/r/check-runs/3", "checks/update"),
        ] {
            assert_eq!(operation(&method, path).id(), id);
        }
        for (method, path) in [
            (Method::PUT, RUNS),
            (Method::GET, RUNS),
            (Method::GET, "/repos/o//branches"),
            (Method::GET, "/user"),
        ] {
            assert!(Operation::of(&method, path).is_none(), "{method} {path}");
        }
    }

    #[test]
    fn a_request_with_a_missing_an_unknown_or_an_ill_typed_part_is_found() {
        let good = json!({"name": "n", "head_sha": "s", "output": {"title": "t", "summary": "s"}});
        assert_eq!(asked(&Method::POST, RUNS, &good), Vec::<String>::new());
        let table = [
            (json!({"name": "n"}), "no `head_sha`"),
            (json!({"name": "n", "head_sha": "s", "sha": "s"}), "request.sha: no such field"),
            (json!({"name": 1, "head_sha": "s"}), "request.name: 1 is no \"string\""),
            (json!({"name": "n", "head_sha": "s", "status": "done"}), "is none of"),
            (json!({"name": "n", "head_sha": "s", "started_at": "now"}), "is no \"date-time\""),
            (json!({"name": "n", "head_sha": "s", "output": {"title": "t"}}), "request.output: no `summary`"),
            (
                json!({"name": "n", "head_sha": "s", "output": {"title": "t", "summary": "x".repeat(65_536)}}),
                "65536 characters",
            ),
            (Value::Null, "no body"),
        ];
        for (body, problem) in table {
            let found = asked(&Method::POST, RUNS, &body);
            assert!(found.len() == 1 && found[0].contains(problem), "{found:?} instead of {problem}");
        }
    }

    #[test]
    fn a_parameter_that_is_unknown_or_ill_typed_is_found() {
        let table = [
            ("/repos/o/r/branches?per_page=100&page=2", ""),
            ("/repos/o/r/branches?perpage=100", "no such parameter: `perpage`"),
            ("/repos/o/r/branches?per_page=many", "parameter per_page"),
            ("/repos/o/r/pulls?state=opened", "is none of"),
            ("/repos/o/r/pulls/x/files", "parameter pull_number"),
            ("/repos/o/r/issues/comments?since=2026-01-01T00%3A00%3A00Z", ""),
            ("/repos/o/r/issues/comments?since=yesterday", "is no \"date-time\""),
        ];
        for (target, problem) in table {
            let found = asked(&Method::GET, target, &Value::Null).join("; ");
            assert!(found.is_empty() == problem.is_empty() && found.contains(problem), "{target}: {found:?}");
        }
    }

    #[test]
    fn completing_a_check_run_without_a_conclusion_is_found() {
        let path = "/repos/o/r/check-runs/3";
        let found = asked(&Method::PATCH, path, &json!({"status": "completed"}));
        assert!(found.len() == 1 && found[0].contains("fits none of its forms"), "{found:?}");
        assert!(
            asked(&Method::PATCH, path, &json!({"status": "completed", "conclusion": "success"})).is_empty()
        );
    }

    #[test]
    fn an_answer_that_does_not_fit_is_found() {
        let (get, branches) = (Method::GET, "/repos/o/r/branches");
        let branch = |sha: Value| json!([{"name": "main", "protected": false, "commit": {"sha": sha, "url": "https://x/y"}}]);
        assert!(answered(&get, branches, 200, &branch(json!("a"))).is_empty());
        let table = [
            (200, branch(json!(null)), "answer 200[0].commit.sha: null is no \"string\""),
            (200, json!([{"name": "main", "protected": false}]), "answer 200[0]: no `commit`"),
            (200, json!({}), "{} is no \"array\""),
            (201, json!([]), "GitHub does not answer 201"),
            (403, json!({"msg": "no"}), "answer 403.msg: no such field"),
        ];
        for (status, body, problem) in table {
            let found = answered(&get, branches, status, &body);
            assert!(found.iter().any(|found| found.contains(problem)), "{found:?} instead of {problem}");
        }
        assert!(answered(&get, branches, 403, &json!({"message": "no"})).is_empty());
    }

    /// GitHub's own examples of good answers are judge over our reading of its description; where an example does not
    /// fit the description it stands beside, that is GitHub's slip.
    #[test]
    fn github_s_own_examples_fit() {
        const SLIPS: &[&str] = &[
            "mirror_url: \"git:git.example.com",
            "network_count: no such field",
            "subscribers_count: no such field",
            "template_repository: no such field",
            "security_and_analysis: no such field",
            "requested_teams[0]: no `type`",
            "no `language`",
            "user: no `role_name`",
            "files[0]: no `contents_url`",
            "files[0]: no `sha`",
            "required_status_checks: no `checks`",
        ];
        let examples = include_str!("../../../tests/data/github-examples.json");
        let examples: BTreeMap<String, Value> = serde_json::from_str(examples).expect("examples");
        assert!(examples.len() >= 19, "{:?}", examples.keys());
        let mut found = Vec::new();
        for (id, example) in &examples {
            let method: Method = example["method"].as_str().expect("a method").parse().expect("a method");
            let path = example["path"].as_str().expect("a path");
            let status = u16::try_from(example["status"].as_u64().expect("a status")).expect("a status");
            assert_eq!(operation(&method, path).id(), id);
            found.extend(
                answered(&method, path, status, &example["value"])
                    .iter()
                    .map(|problem| format!("{id}: {problem}")),
            );
        }
        found.retain(|problem| !SLIPS.iter().any(|slip| problem.contains(slip)));
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    #[test]
    fn every_word_of_the_description_is_one_that_is_checked() {
        const CHECKED: &[&str] = &[
            "$ref",
            "additionalProperties",
            "anyOf",
            "enum",
            "format",
            "items",
            "maxItems",
            "maxLength",
            "maximum",
            "minimum",
            "nullable",
            "oneOf",
            "properties",
            "required",
            "type",
        ];
        fn words(schema: &Value, found: &mut std::collections::BTreeSet<String>) {
            let Some(object) = schema.as_object() else { return };
            for (word, value) in object {
                found.insert(word.clone());
                match word.as_str() {
                    "properties" => {
                        value.as_object().into_iter().flatten().for_each(|(_, inner)| words(inner, found))
                    }
                    "oneOf" | "anyOf" => {
                        value.as_array().into_iter().flatten().for_each(|inner| words(inner, found))
                    }
                    "items" | "additionalProperties" => words(value, found),
                    _ => {}
                }
            }
        }
        let description = &Description::get().0;
        let mut found = std::collections::BTreeSet::new();
        for schema in description["components"]["schemas"].as_object().expect("schemas").values() {
            words(schema, &mut found);
        }
        for operation in
            description["paths"].as_object().expect("paths").values().flat_map(|m| m.as_object()).flatten()
        {
            words(&operation.1["requestBody"]["content"]["application/json"]["schema"], &mut found);
        }
        found.remove("default");
        assert!(found.iter().all(|word| CHECKED.contains(&word.as_str())), "{found:?}");
        assert!(found.contains("nullable") && found.contains("maxLength"), "{found:?}");
    }
}
