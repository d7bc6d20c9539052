//! Whatever bytes arrive: no panic, no 500, and every refusal is a Status.
//!
//! Each target changes good requests at random, by bytes and by structure, from a seed: a failure names its round, and
//! the same round fails again. `PAWL_FUZZ_ROUNDS` (`make fuzz`) runs more than a test run does.

use bytes::Bytes;
use http::Request;
use pawl_apiserver::Server;
use serde_json::{Map, Value, json};

use crate::{post, server};

/// A few seconds for all targets together; `make fuzz` runs a thousand times as many.
const ROUNDS: u64 = 1_500;

/// What Kubernetes says, with 500, to a server-side apply of a field that the schema does not have.
const TYPED: &str = "failed to create typed patch object";
/// What it says, as text, about a path that leads nowhere.
const NO_PAGE: &str = "404 page not found";

/// What breaks parsers elsewhere.
const WORDS: &[&str] = &[
    "",
    " ",
    "\u{0}",
    "\u{feff}",
    "\u{202e}",
    "ä",
    "💥",
    "/",
    "//",
    "..",
    "%",
    "%2",
    "%00",
    "%2F",
    "%zz",
    "?",
    "#",
    "&",
    "=",
    "==",
    "!=",
    "!",
    "in",
    "notin",
    "(",
    ")",
    "()",
    ",",
    ",,",
    "*",
    "~1",
    "~0",
    "~",
    "-",
    "-1",
    "0",
    "1e999",
    "1e-999",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "NaN",
    "null",
    "true",
    "{}",
    "[]",
    "[[[[[[[[[[",
    "{{{{{{",
    "$(x)",
    "${x}",
    "\\",
    "\"",
    "'",
    "\n",
    "\r\n",
    "\t",
    "watch=true",
    "limit=",
    "continue=",
    "resourceVersion=",
    "fieldSelector=",
    "labelSelector=",
    "dryRun=All",
    "fieldManager=",
    "force=true",
    "self",
    "oldSelf",
    "size()",
    ".all(x,",
    "matches('(a+)+$')",
    "? :",
    "cel.bind(x,",
    "metadata",
    "status",
    "scale",
    "log",
    "eviction",
    "token",
    "binding",
    "finalize",
];

/// One way in: makes a request of this round's luck.
type Target = fn(&mut fastrand::Rng) -> Request<Bytes>;

/// Sends `ROUNDS` requests, and more where asked to.
fn run(target: Target) {
    let rounds = std::env::var("PAWL_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let mut server = furnished();
    for round in 0..rounds {
        // What earlier rounds left must neither decide about this one for ever nor fill the memory.
        if round % 500 == 499 {
            server = furnished();
        }
        let request = target(&mut fastrand::Rng::with_seed(round));
        let told = format!("round {round}: {} {} {:?}", request.method(), request.uri(), request.body());
        let answer = server.call(request);
        let (status, body) = (answer.status().as_u16(), answer.body());
        let words = String::from_utf8_lossy(body);
        assert!(status < 500 || words.contains(TYPED), "{told}\n{status} {words}");
        if status >= 400 && words.trim_end() != NO_PAGE {
            let read: Value =
                serde_json::from_str(&words).unwrap_or_else(|error| panic!("{told}\n{status} {error}"));
            assert_eq!((&read["kind"], &read["code"]), (&json!("Status"), &json!(status)), "{told}\n{read}");
            assert!(read["message"].as_str().is_some_and(|message| !message.is_empty()), "{told}\n{read}");
        }
    }
    let (status, _) = crate::get(&server, "/api/v1/namespaces");
    assert_eq!(status, 200, "the server goes on");
}

/// A server with one object of each kind that the targets work on.
fn furnished() -> Server {
    let server = server();
    for (path, object) in [
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition("self.size >= 0")),
        ("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "a"}, "data": {"k": "v"}})),
        ("/api/v1/namespaces/default/pods", pod()),
        ("/apis/apps/v1/namespaces/default/deployments", deployment()),
        ("/apis/example.com/v1/namespaces/default/things", thing()),
    ] {
        let (status, body) = post(&server, path, &object);
        assert_eq!(status, 201, "{path}: {body}");
    }
    server
}

fn definition(rule: &str) -> Value {
    let list = json!({"type": "array", "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}},
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]});
    let spec = json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}], "properties": {
        "size": {"type": "integer", "default": 1}, "list": list, "any": {"type": "object",
        "x-kubernetes-preserve-unknown-fields": true}, "text": {"type": "string", "pattern": "^[a-z]*$"}}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema, "subresources": {"status": {}}});
    json!({"metadata": {"name": "things.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
        "versions": [version]}})
}

fn thing() -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "labels": {"app": "x"}},
        "spec": {"size": 3, "list": [{"k": "a"}, {"k": "b"}], "any": {"deep": [1, {"x": null}]}, "text": "abc"}})
}

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "finalizers": ["example.com/f"]},
        "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "$(B)"}],
        "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}}}]}})
}

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {"replicas": 2,
        "selector": {"matchLabels": {"app": "a"}}, "template": {"metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

const COLLECTIONS: &[&str] = &[
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/pods",
    "/apis/apps/v1/namespaces/default/deployments",
    "/apis/example.com/v1/namespaces/default/things",
];

fn request(method: &str, uri: &str, media: &str, body: impl Into<Bytes>) -> Option<Request<Bytes>> {
    Request::builder().method(method).uri(uri).header("content-type", media).body(body.into()).ok()
}

/// One of them.
fn one<'a>(rng: &mut fastrand::Rng, of: &[&'a str]) -> &'a str {
    of[rng.usize(0..of.len())]
}

/// Text with a few of its characters gone, doubled, or replaced by something nasty.
fn mangled(rng: &mut fastrand::Rng, text: &str) -> String {
    let mut text = text.to_owned();
    for _ in 0..rng.usize(1..4) {
        let at: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let (from, to) = (at[rng.usize(0..at.len())], at[rng.usize(0..at.len())]);
        let (from, to) = (from.min(to), from.max(to).min(from.min(to) + 6));
        let to = (to..=text.len()).find(|to| text.is_char_boundary(*to)).unwrap_or(text.len());
        let word = match rng.u8(0..4) {
            0 => String::new(),
            1 => text[from..to].repeat(rng.usize(2..40)),
            _ => one(rng, WORDS).to_owned(),
        };
        text.replace_range(from..to, &word);
    }
    text
}

fn mangled_bytes(rng: &mut fastrand::Rng, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..rng.usize(1..6) {
        let at = rng.usize(0..=bytes.len());
        match rng.u8(0..4) {
            0 => bytes.truncate(at),
            1 => bytes.splice(at..at, (0..rng.usize(1..12)).map(|_| 0xff)).for_each(drop),
            _ if at < bytes.len() => bytes[at] = rng.u8(..),
            _ => bytes.push(rng.u8(..)),
        }
    }
    bytes
}

/// A value that is not what was expected.
fn odd(rng: &mut fastrand::Rng) -> Value {
    match rng.u8(0..9) {
        0 => Value::Null,
        1 => json!(rng.i64(..)),
        2 => json!(f64::from(rng.i32(..)) * 1e300),
        3 => json!([]),
        4 => json!({}),
        5 => json!([{"name": "a"}, {"name": "a"}, null, 1]),
        6 => json!("x".repeat(rng.usize(0..3_000))),
        7 => json!({"": {"": [[[{}]]]}, "a/b": 1, "~": true}),
        _ => json!(one(rng, WORDS)),
    }
}

/// The same tree with one of its places changed, removed, or given something more.
fn warped(rng: &mut fastrand::Rng, value: &Value) -> Value {
    match value {
        Value::Object(map) if !map.is_empty() && rng.u8(0..6) > 0 => {
            let mut map: Map<String, Value> = map.clone();
            let key = map.keys().nth(rng.usize(0..map.len())).cloned().unwrap_or_default();
            match rng.u8(0..8) {
                0 => drop(map.remove(&key)),
                1 => drop(map.insert(mangled(rng, &key), odd(rng))),
                _ => drop(map.insert(key.clone(), warped(rng, &value[&key]))),
            }
            map.into()
        }
        Value::Array(items) if !items.is_empty() && rng.u8(0..6) > 0 => {
            let (mut items, at) = (items.clone(), rng.usize(0..items.len()));
            match rng.u8(0..4) {
                0 => items.push(items[at].clone()),
                _ => items[at] = warped(rng, &items[at]),
            }
            items.into()
        }
        Value::String(text) if rng.bool() => mangled(rng, text).into(),
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => odd(rng),
    }
}

#[test]
fn any_path_and_query_get_an_answer() {
    run(|rng| {
        let good = [
            "/api/v1/namespaces/default/configmaps/a",
            "/api/v1/namespaces/default/configmaps?limit=1&labelSelector=app%3Dx",
            "/apis/apps/v1/namespaces/default/deployments/a/scale",
            "/apis/example.com/v1/things?resourceVersion=1&resourceVersionMatch=NotOlderThan",
            "/api/v1/namespaces/default/pods/a/log?tailLines=1",
            "/openapi/v3/apis/apps/v1?hash=x",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        ];
        loop {
            let path = one(rng, &good);
            let path = mangled(rng, path);
            let method = one(rng, &["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]);
            // A watch never ends; that it is opened or refused is shown elsewhere.
            if path.contains("watch") || path.contains("follow") {
                continue;
            }
            if let Some(request) = request(method, &path, "application/json", "{}") {
                return request;
            }
        }
    });
}

#[test]
fn any_body_gets_an_answer() {
    run(|rng| {
        let which = rng.usize(0..COLLECTIONS.len());
        let good = [json!({"metadata": {"name": "b"}, "data": {"k": "v"}}), pod(), deployment(), thing()]
            [which]
            .clone();
        let mut object = warped(rng, &good);
        for _ in 0..rng.usize(0..3) {
            object = warped(rng, &object);
        }
        let body = match rng.u8(0..5) {
            0 => mangled_bytes(rng, object.to_string().as_bytes()),
            _ => object.to_string().into_bytes(),
        };
        let media = one(rng, &["application/json", "application/yaml"]);
        let (method, path) = match rng.u8(0..3) {
            0 => ("PUT", format!("{}/a", COLLECTIONS[which])),
            _ => ("POST", COLLECTIONS[which].to_owned()),
        };
        request(method, &path, media, body).unwrap()
    });
}

/// A field of protobuf with bytes in it.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut len = bytes.len();
    while len >= 0x80 {
        out.push(u8::try_from(len & 0x7f).unwrap() | 0x80);
        len >>= 7;
    }
    out.push(u8::try_from(len).unwrap());
    out.extend_from_slice(bytes);
    out
}

#[test]
fn any_protobuf_gets_an_answer() {
    run(|rng| {
        let metadata = [field(1, b"b"), field(11, &[field(1, b"app"), field(2, b"x")].concat())].concat();
        let (kind, raw, path) = match rng.u8(0..2) {
            0 => {
                let data = field(2, &[field(1, b"k"), field(2, b"v")].concat());
                ("ConfigMap", [field(1, &metadata), data].concat(), COLLECTIONS[0])
            }
            _ => {
                let container = [field(1, b"c"), field(2, b"i")].concat();
                ("Pod", [field(1, &metadata), field(2, &field(2, &container))].concat(), COLLECTIONS[1])
            }
        };
        let raw = if rng.bool() { mangled_bytes(rng, &raw) } else { raw };
        let kind = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        let envelope = [b"k8s\0".to_vec(), field(1, &kind), field(2, &raw)].concat();
        let body = if rng.bool() { mangled_bytes(rng, &envelope) } else { envelope };
        request("POST", path, "application/vnd.kubernetes.protobuf", body).unwrap()
    });
}

#[test]
fn any_patch_gets_an_answer() {
    run(|rng| {
        let which = rng.usize(0..COLLECTIONS.len());
        let whole = [json!({"metadata": {"name": "a"}, "data": {"k": "w"}}), pod(), deployment(), thing()]
            [which]
            .clone();
        let applied = || {
            let (version, kind) =
                [("v1", "ConfigMap"), ("v1", "Pod"), ("apps/v1", "Deployment"), ("example.com/v1", "Thing")]
                    [which];
            let mut whole = whole.clone();
            whole["apiVersion"] = json!(version);
            whole["kind"] = json!(kind);
            whole
        };
        let (media, patch) = match rng.u8(0..4) {
            0 => ("application/merge-patch+json", whole.clone()),
            1 => {
                let directive = json!({"$patch": "replace", "containers": [{"$patch": "delete", "name": "c"}],
                    "$setElementOrder/containers": [{"name": "c"}], "$deleteFromPrimitiveList/finalizers": ["x"]});
                (
                    "application/strategic-merge-patch+json",
                    json!({"metadata": whole["metadata"], "spec": directive}),
                )
            }
            2 => {
                let steps = json!([{"op": "test", "path": "/metadata/name", "value": "a"},
                    {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
                    {"op": "move", "from": "/metadata/labels/a", "path": "/metadata/labels/c~1d"},
                    {"op": "copy", "from": "/spec", "path": "/spec/x/-"}, {"op": "remove", "path": "/spec/list/0"}]);
                ("application/json-patch+json", steps)
            }
            _ => ("application/apply-patch+yaml", applied()),
        };
        let patch = warped(rng, &patch);
        let patch = warped(rng, &patch).to_string();
        let body = if rng.u8(0..6) == 0 { mangled_bytes(rng, patch.as_bytes()) } else { patch.into_bytes() };
        let part = one(rng, &["", "/status", "/scale"]);
        let path = format!("{}/a{part}?fieldManager=f{}", COLLECTIONS[which], one(rng, &["", "&force=true"]));
        request("PATCH", &path, media, body).unwrap()
    });
}

#[test]
fn any_selector_gets_an_answer() {
    run(|rng| {
        let good = [
            "app=x,tier!=y",
            "app in (a,b),!c",
            "metadata.name=a,metadata.namespace!=b",
            "x notin (a),b==c,d",
        ];
        let (a, b) = (one(rng, &good), one(rng, &good));
        let (a, b) = (mangled(rng, a), mangled(rng, b));
        let query = form_urlencoded(&[("labelSelector", &a), ("fieldSelector", &b)]);
        let method = one(rng, &["GET", "DELETE"]);
        request(method, &format!("{}?{query}", one(rng, COLLECTIONS)), "", "").unwrap()
    });
}

fn form_urlencoded(pairs: &[(&str, &str)]) -> String {
    let escape = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    pairs.iter().map(|(name, value)| format!("{name}={}", escape(value))).collect::<Vec<_>>().join("&")
}

#[test]
fn any_rule_gets_an_answer() {
    run(|rng| {
        let good = [
            "self.size >= 0 && self.size < 10",
            "has(self.list) ? self.list.all(x, x.k != '') : true",
            "self.text.matches('^[a-z]*$') || self.?any.deep.hasValue()",
            "oldSelf == null || self.size >= oldSelf.size",
            "[1, 2, 3].map(x, x * self.size).filter(y, y > 2).exists(z, z == 4)",
            "cel.bind(n, self.size, n + 1) > duration('1h').getHours()",
            "'{\"a\": 1}'.size() > 0 && quantity('1Gi').isGreaterThan(quantity('1Mi'))",
            "timestamp('2026-01-01T00:00:00Z').getFullYear() == 2026",
        ];
        let rule = one(rng, &good);
        let rule = mangled(rng, rule);
        if rng.bool() {
            // The rule is compiled, and where it can be, run on an object.
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
            let patch = json!([{"op": "replace", "value": rule,
                "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations/0/rule"}]);
            request("PATCH", path, "application/json-patch+json", patch.to_string()).unwrap()
        } else {
            let patch = json!({"spec": {"size": rng.i32(0..9), "text": "abc"}}).to_string();
            request("PATCH", &format!("{}/a", COLLECTIONS[3]), "application/merge-patch+json", patch).unwrap()
        }
    });
}
