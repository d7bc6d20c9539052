//! What did a container say? `pods/log`, answered from wherever the containers' output is kept.

use std::fmt;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::Method;
use http::request::Parts;
use jiff::Timestamp;
use serde_json::Value;

use super::query::{Query, decode};
use crate::status::Status;
use crate::verbs::Core;

/// Which part of a container's output is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogRequest {
    pub pod: String,
    pub pod_uid: String,
    pub container: String,
    /// Why the container has not started, where its status says so.
    pub waiting: Option<String>,
    /// Go on until the container ends.
    pub follow: bool,
    /// The run before the last restart.
    pub previous: bool,
    pub timestamps: bool,
    pub tail_lines: Option<u64>,
    pub since_seconds: Option<i64>,
    pub since_time: Option<Timestamp>,
    pub limit_bytes: Option<u64>,
}

/// Whoever keeps the output of containers.
pub trait PodLogs: Send + Sync + fmt::Debug {
    /// The output, or a sentence that says why there is none.
    fn open(&self, request: LogRequest) -> BoxFuture<'static, Result<BoxStream<'static, Bytes>, String>>;
}

/// The request, if it is one for a pod's log.
pub(super) fn asked(core: &Core, request: &Parts) -> Option<Result<LogRequest, Status>> {
    let parts: Vec<&str> = request.uri.path().split('/').collect();
    let ["", "api", "v1", "namespaces", namespace, "pods", name, "log"] = parts.as_slice() else {
        return None;
    };
    if request.method != Method::GET {
        return Some(Err(Status::method_not_allowed()));
    }
    Some(read(core, namespace, name, request.uri.query().unwrap_or_default()))
}

fn read(core: &Core, namespace: &str, name: &str, query: &str) -> Result<LogRequest, Status> {
    let (namespace, name) = (decode(namespace, false)?, decode(name, false)?);
    let query = Query::parse(query)?;
    let registry = core.registry();
    let pods = registry.find("", "v1", "pods").ok_or_else(Status::no_such_resource)?;
    let pod = core
        .store
        .get(&pods.table, &crate::store::key(&namespace, &name))
        .ok_or_else(|| Status::not_found(pods, &name))?;
    let pod = pod.value();
    let container = container(&pod, &name, query.get("container"))?;
    let number = |key: &str| -> Result<Option<u64>, Status> {
        let Some(text) = query.get(key).filter(|text| !text.is_empty()) else { return Ok(None) };
        let bad = |_| Status::bad_request(format!("{key}: {text:?} is not a number of 0 or more"));
        text.parse().map(Some).map_err(bad)
    };
    let since_time = match query.get("sinceTime").filter(|text| !text.is_empty()) {
        None => None,
        Some(text) => Some(text.parse().map_err(|error| {
            Status::bad_request(format!("sinceTime: {text:?} is not a time as in RFC 3339: {error}"))
        })?),
    };
    let since_seconds = number("sinceSeconds")?.and_then(|seconds| i64::try_from(seconds).ok());
    if since_seconds.is_some() && since_time.is_some() {
        return Err(Status::unprocessable("at most one of sinceTime or sinceSeconds may be specified"));
    }
    Ok(LogRequest {
        pod: name,
        waiting: waiting(&pod, &container),
        pod_uid: pod.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned(),
        container,
        follow: query.flag("follow").unwrap_or_default(),
        previous: query.flag("previous").unwrap_or_default(),
        timestamps: query.flag("timestamps").unwrap_or_default(),
        tail_lines: number("tailLines")?,
        since_seconds,
        since_time,
        limit_bytes: number("limitBytes")?,
    })
}

/// The container that is meant: the one named, or the only one.
fn container(pod: &Value, name: &str, asked: Option<&str>) -> Result<String, Status> {
    let names = |list: &str| -> Vec<String> {
        let containers = pod.pointer(list).and_then(Value::as_array).into_iter().flatten();
        containers.filter_map(|container| container.get("name")?.as_str().map(str::to_owned)).collect()
    };
    let (mut all, init) = (names("/spec/containers"), names("/spec/initContainers"));
    match asked.filter(|asked| !asked.is_empty()) {
        Some(asked) if all.iter().chain(&init).any(|known| known == asked) => Ok(asked.to_owned()),
        Some(asked) => Err(Status::bad_request(format!("container {asked} is not valid for pod {name}"))),
        None if all.len() == 1 => Ok(all.remove(0)),
        None => Err(Status::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]{}",
            all.join(" "),
            if init.is_empty() {
                String::new()
            } else {
                format!(" or one of the init containers: [{}]", init.join(" "))
            },
        ))),
    }
}

/// Why a container waits, as its status tells.
fn waiting(pod: &Value, container: &str) -> Option<String> {
    let lists = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let mut all =
        lists.iter().flat_map(|list| pod.pointer(list).and_then(Value::as_array).into_iter().flatten());
    let status = all.find(|status| status.get("name").and_then(Value::as_str) == Some(container))?;
    status.pointer("/state/waiting/reason").and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SeededEnv, Server};
    use bytes::Bytes;
    use http::Request;
    use std::sync::Arc;

    fn ask(path: &str) -> Result<LogRequest, Status> {
        let server = Server::in_memory(Arc::new(SeededEnv::new(1, Timestamp::UNIX_EPOCH)));
        let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[
            {"name":"a","image":"x"},{"name":"b","image":"x"}]}}"#;
        let request = Request::post("/api/v1/namespaces/default/pods").body(Bytes::from(pod)).unwrap();
        assert_eq!(server.call(request).status(), 201);
        let (parts, ()) = Request::get(path).body(()).unwrap().into_parts();
        asked(server.core(), &parts).unwrap()
    }

    #[test]
    fn a_log_is_asked_for_by_container_with_all_its_options() {
        let log =
            ask("/api/v1/namespaces/default/pods/p/log?container=b&follow=true&tailLines=3&timestamps=true")
                .unwrap();
        assert_eq!(
            (log.container.as_str(), log.follow, log.timestamps, log.tail_lines),
            ("b", true, true, Some(3))
        );
        assert!(!log.pod_uid.is_empty());
    }

    #[test]
    fn the_only_container_is_meant_whatever_ran_before_it() {
        let pod = serde_json::json!({
            "spec": {"initContainers": [{"name": "i"}], "containers": [{"name": "a"}]},
            "status": {"initContainerStatuses": [{"name": "i", "state": {"running": {}}}],
                "containerStatuses": [{"name": "a", "state": {"waiting": {"reason": "PodInitializing"}}}]},
        });
        assert_eq!(container(&pod, "p", None).unwrap(), "a");
        assert_eq!(container(&pod, "p", Some("i")).unwrap(), "i");
        assert_eq!(waiting(&pod, "a").as_deref(), Some("PodInitializing"));
        assert_eq!((waiting(&pod, "i"), waiting(&pod, "absent")), (None, None));
    }

    #[test]
    fn what_cannot_be_answered_says_why() {
        for (query, code, words) in [
            ("", 400, "choose one of: [a b]"),
            ("?container=c", 400, "container c is not valid for pod p"),
            ("?container=a&tailLines=-1", 400, "tailLines"),
            ("?container=a&sinceTime=yesterday", 400, "sinceTime"),
            ("?container=a&sinceTime=2026-01-01T00:00:00Z&sinceSeconds=1", 422, "at most one"),
        ] {
            let status = ask(&format!("/api/v1/namespaces/default/pods/p/log{query}")).unwrap_err();
            assert_eq!(status.code, code, "{query}");
            assert!(status.message.contains(words), "{}", status.message);
        }
        assert_eq!(ask("/api/v1/namespaces/default/pods/q/log").unwrap_err().code, 404);
    }
}
