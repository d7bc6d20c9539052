//! What does a Target's configuration say: a kubeconfig that may be used, a ServiceAccount, or something that is refused?
//!
//! Whoever may write a Target is not whoever runs Pawl. So a kubeconfig counts only as far as it stands for itself:
//! nothing in it may run a program, read a file of Pawl's machine, or send credentials in clear. What is left is made anew
//! from the few fields that are known to be harmless.

use serde_json::{Map, Value, json};

use super::target::service_account;
use crate::yaml;

/// How to get at a Target's cluster.
#[derive(Clone, PartialEq)]
pub enum Access {
    /// The cluster that Pawl runs on, as this ServiceAccount of the Target's namespace.
    ServiceAccount(String),
    /// A kubeconfig with one context, and nothing in it but data.
    Kubeconfig(Value),
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ServiceAccount(name) => f.debug_tuple("ServiceAccount").field(name).finish(),
            // It holds credentials (I6).
            Self::Kubeconfig(_) => f.write_str("Kubeconfig"),
        }
    }
}

/// Why a configuration is not used. It never repeats a value that may be secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("it is not YAML: line {line}")]
    NotYaml { line: usize },
    #[error(
        "it is neither a kubeconfig, nor {{kubeconfig}}, nor {{selfConfig: {{serviceAccount: {{name}}}}}}"
    )]
    Unknown,
    #[error("the kubeconfig names no {0} that is in it")]
    Missing(&'static str),
    #[error("the kubeconfig's {place}.{field} is refused: {why}")]
    Field { place: &'static str, field: &'static str, why: &'static str },
}

/// Fields of a cluster that are data.
const OF_CLUSTER: &[&str] =
    &["server", "certificate-authority-data", "insecure-skip-tls-verify", "tls-server-name"];

/// Fields of a user that are data.
const OF_USER: &[&str] = &[
    "token",
    "username",
    "password",
    "client-certificate-data",
    "client-key-data",
    "as",
    "as-uid",
    "as-groups",
    "as-user-extra",
];

const A_FILE: &str = "files of Pawl's machine are not read; write the data itself";
const A_PROGRAM: &str = "Pawl runs no programs for credentials; write a token or a client certificate";

/// Reads what a Target or its Secret holds.
///
/// # Errors
/// When it is not one of the three forms, or asks for what is not done for it.
pub fn access(config: &Value) -> Result<Access, Refused> {
    let parsed;
    let config = match config {
        Value::String(text) => {
            parsed = read(text)?;
            &parsed
        }
        other @ Value::Null
        | other @ Value::Bool(_)
        | other @ Value::Number(_)
        | other @ Value::Array(_)
        | other @ Value::Object(_) => other,
    };
    if let Some(own) = config.get("selfConfig") {
        let name = service_account(own).ok_or(Refused::Unknown)?;
        return Ok(Access::ServiceAccount(name.to_owned()));
    }
    match config.get("kubeconfig") {
        Some(Value::String(text)) => kubeconfig(&read(text)?),
        Some(inner) => kubeconfig(inner),
        None if config.get("clusters").is_some() => kubeconfig(config),
        None => Err(Refused::Unknown),
    }
}

fn read(text: &str) -> Result<Value, Refused> {
    // The problem's own words may quote the text.
    yaml::read(text).map_err(|error| Refused::NotYaml { line: error.line })
}

fn kubeconfig(config: &Value) -> Result<Access, Refused> {
    let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
    let current = text(config, "current-context").filter(|name| !name.is_empty());
    let contexts = config.get("contexts").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let context = match (&current, contexts) {
        (Some(name), all) => find(all, name),
        (None, [only]) => Some(only),
        (None, _) => None,
    };
    let context = context.and_then(|context| context.get("context")).ok_or(Refused::Missing("context"))?;
    let part = |list: &str, name: Option<String>, field: &str| {
        let all = config.get(list).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        find(all, &name?).and_then(|found| found.get(field)).cloned()
    };
    let cluster = part("clusters", text(context, "cluster"), "cluster").ok_or(Refused::Missing("cluster"))?;
    let user = part("users", text(context, "user"), "user").ok_or(Refused::Missing("user"))?;
    check(&cluster, "cluster", &[("certificate-authority", A_FILE), ("proxy-url", "proxies are not used")])?;
    check(
        &user,
        "user",
        &[
            ("exec", A_PROGRAM),
            ("auth-provider", A_PROGRAM),
            ("tokenFile", A_FILE),
            ("client-certificate", A_FILE),
            ("client-key", A_FILE),
        ],
    )?;
    let server = text(&cluster, "server").unwrap_or_default();
    if !server.starts_with("https://") {
        let why = "write https://HOST:PORT; credentials are not sent in clear";
        return Err(Refused::Field { place: "cluster", field: "server", why });
    }
    Ok(Access::Kubeconfig(json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "target",
        "contexts": [{"name": "target", "context": {"cluster": "target", "user": "target"}}],
        "clusters": [{"name": "target", "cluster": only(&cluster, OF_CLUSTER)}],
        "users": [{"name": "target", "user": only(&user, OF_USER)}],
    })))
}

fn find<'a>(all: &'a [Value], name: &str) -> Option<&'a Value> {
    all.iter().find(|one| one.get("name").and_then(Value::as_str) == Some(name))
}

fn check(part: &Value, place: &'static str, refused: &[(&'static str, &'static str)]) -> Result<(), Refused> {
    let set = |field: &str| part.get(field).is_some_and(|value| !value.is_null() && *value != json!(""));
    match refused.iter().find(|(field, _)| set(field)) {
        Some((field, why)) => Err(Refused::Field { place, field, why }),
        None => Ok(()),
    }
}

fn only(part: &Value, fields: &[&str]) -> Map<String, Value> {
    let kept = fields.iter().filter_map(|field| Some(((*field).to_owned(), part.get(*field)?.clone())));
    kept.filter(|(_, value)| !value.is_null()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
    fn config(cluster: Value, user: Value) -> Value {
        json!({"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": cluster}], "users": [{"name": "u", "user": user}]})
    }

    fn plain() -> Value {
        config(json!({"server": "https://host:6443"}), json!({"token": "not-a-real-token"}))
    }

    #[test]
    fn a_kubeconfig_is_read_in_every_form_that_people_write() {
        let text = plain().to_string();
        let forms = [
            plain(),
            json!(text),
            json!({"kubeconfig": plain()}),
            json!({"kubeconfig": text}),
            json!(format!("kubeconfig: {text}")),
        ];
        for form in forms {
            let Ok(Access::Kubeconfig(read)) = access(&form) else { panic!("{form}") };
            assert_eq!(read["clusters"][0]["cluster"]["server"], "https://host:6443");
            assert_eq!(read["users"][0]["user"]["token"], "not-a-real-token");
        }
        let own = json!({"selfConfig": {"serviceAccount": {"name": "sa"}}});
        assert_eq!(access(&own), Ok(Access::ServiceAccount("sa".to_owned())));
    }

    #[test]
    fn what_runs_programs_or_reads_files_is_refused_by_name() {
        let https = json!({"server": "https://host"});
        let cases = [
            (https.clone(), json!({"exec": {"command": "rm"}}), "user.exec"),
            (https.clone(), json!({"auth-provider": {"name": "gcp"}}), "user.auth-provider"),
            (https.clone(), json!({"tokenFile": "/etc/shadow"}), "user.tokenFile"),
            (https.clone(), json!({"client-certificate": "/x"}), "user.client-certificate"),
            (https.clone(), json!({"client-key": "/x"}), "user.client-key"),
            (
                json!({"server": "https://h", "certificate-authority": "/x"}),
                json!({}),
                "cluster.certificate-authority",
            ),
            (json!({"server": "https://h", "proxy-url": "http://p"}), json!({}), "cluster.proxy-url"),
            (json!({"server": "http://h"}), json!({}), "cluster.server"),
        ];
        for (cluster, user, field) in cases {
            let refused = access(&config(cluster, user)).unwrap_err().to_string();
            assert!(refused.contains(field), "{refused}");
        }
    }

    #[test]
    fn bad_input_is_refused_and_quotes_no_secret() {
        let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
            d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e]";
        let cases = [
            json!(bomb),
            json!("not-a-real-token: ["),
            json!({}),
            json!(7),
            json!({"clusters": []}),
            json!({"selfConfig": {}}),
            json!({"kubeconfig": 7}),
        ];
        for case in cases {
            let refused = access(&case).unwrap_err().to_string();
            assert!(!refused.contains("not-a-real-token"), "{refused}");
        }
        assert!(!format!("{:?}", access(&plain())).contains("not-a-real-token"));
    }

    #[test]
    fn nothing_but_known_fields_is_left() {
        let odd =
            config(json!({"server": "https://h", "extensions": []}), json!({"token": "t", "more": "m"}));
        let Ok(Access::Kubeconfig(read)) = access(&odd) else { panic!("a kubeconfig") };
        assert_eq!(read["clusters"][0]["cluster"], json!({"server": "https://h"}));
        assert_eq!(read["users"][0]["user"], json!({"token": "t"}));
    }
}
