//! Which columns has each built-in kind? Those with priority 1 are shown with `-o wide`.

#![expect(clippy::indexing_slicing, reason = "reading a Value by key never panics: what is absent is null")]

use std::borrow::Borrow;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Builtin, age, count, human, items, number, or_none, pods, text};
use crate::selector;

pub(crate) const AGE: Builtin = ("Age", "string", 0, |o, now| age(o, "/metadata/creationTimestamp", now));
pub(crate) const PLAIN: &[Builtin] = &[AGE];
pub(crate) const CREATED_AT: &[Builtin] =
    &[("Created At", "date", 0, |o, _| o["metadata"]["creationTimestamp"].clone())];
pub(crate) const CONFIG_MAP: &[Builtin] =
    &[("Data", "integer", 0, |o, _| json!(count(&o["data"]) + count(&o["binaryData"]))), AGE];
pub(crate) const SECRET: &[Builtin] = &[
    ("Type", "string", 0, |o, _| o["type"].clone()),
    ("Data", "integer", 0, |o, _| json!(count(&o["data"]))),
    AGE,
];
pub(crate) const SERVICE_ACCOUNT: &[Builtin] =
    &[("Secrets", "string", 0, |o, _| json!(count(&o["secrets"]))), AGE];
pub(crate) const PHASE: &[Builtin] = &[("Status", "string", 0, |o, _| o["status"]["phase"].clone()), AGE];
pub(crate) const API_SERVICE: &[Builtin] = &[
    ("Service", "string", 0, |_, _| json!("Local")),
    ("Available", "string", 0, |o, _| text(&o["status"]["conditions"][0]["status"])),
    AGE,
];
pub(crate) const COMPONENT: &[Builtin] = &[
    ("Status", "string", 0, |o, _| {
        json!(match healthy(o)["status"].as_str() {
            Some("True") => "Healthy",
            Some("False") => "Unhealthy",
            Some(_) | None => "Unknown",
        })
    }),
    ("Message", "string", 0, |o, _| healthy(o)["message"].clone()),
    ("Error", "string", 0, |o, _| text(&healthy(o)["error"])),
];
pub(crate) const SIGNING_REQUEST: &[Builtin] = &[
    AGE,
    ("SignerName", "string", 0, |o, _| or_none(&o["spec"]["signerName"])),
    ("Requestor", "string", 0, |o, _| text(&o["spec"]["username"])),
    ("RequestedDuration", "string", 0, |o, _| {
        o["spec"]["expirationSeconds"].as_i64().map_or(json!("<none>"), |seconds| json!(human(seconds)))
    }),
    ("Condition", "string", 0, |o, _| {
        let has = |wanted: &str| items(&o["status"]["conditions"]).iter().any(|c| c["type"] == wanted);
        let decided = ["Denied", "Approved"].into_iter().find(|wanted| has(wanted));
        let mut said = vec![decided.unwrap_or("Pending")];
        if has("Failed") {
            said.push("Failed");
        }
        if !text(&o["status"]["certificate"]).as_str().unwrap_or_default().is_empty() {
            said.push("Issued");
        }
        json!(said.join(","))
    }),
];
pub(crate) const LEASE: &[Builtin] =
    &[("Holder", "string", 0, |o, _| text(&o["spec"]["holderIdentity"])), AGE];
pub(crate) const BINDING: &[Builtin] = &[
    ("Role", "string", 0, |o, _| kind_and_name(&o["roleRef"])),
    AGE,
    ("Users", "string", 1, |o, _| subjects(o, "User")),
    ("Groups", "string", 1, |o, _| subjects(o, "Group")),
    ("ServiceAccounts", "string", 1, |o, _| subjects(o, "ServiceAccount")),
];
pub(crate) const POD: &[Builtin] = &[
    ("Ready", "string", 0, |o, _| pods::ready(o)),
    ("Status", "string", 0, |o, _| pods::status(o)),
    ("Restarts", "string", 0, pods::restarts),
    AGE,
    ("IP", "string", 1, |o, _| or_none(&o["status"]["podIP"])),
    ("Node", "string", 1, |o, _| or_none(&o["spec"]["nodeName"])),
    ("Nominated Node", "string", 1, |o, _| or_none(&o["status"]["nominatedNodeName"])),
    ("Readiness Gates", "string", 1, |o, _| pods::readiness_gates(o)),
];
pub(crate) const NODE: &[Builtin] = &[
    ("Status", "string", 0, |o, _| {
        let ready = items(&o["status"]["conditions"]).iter().find(|c| c["type"] == "Ready");
        let known = match ready.and_then(|c| c["status"].as_str()) {
            Some("True") => "Ready",
            Some(_) => "NotReady",
            None => "Unknown",
        };
        let closed = if o["spec"]["unschedulable"] == true { ",SchedulingDisabled" } else { "" };
        json!(format!("{known}{closed}"))
    }),
    ("Roles", "string", 0, |o, _| {
        let labels = o["metadata"]["labels"].as_object();
        let roles = labels.into_iter().flatten().filter_map(|(label, value)| {
            match label.strip_prefix("node-role.kubernetes.io/") {
                Some(role) => Some(role).filter(|r| !r.is_empty()),
                None if label == "kubernetes.io/role" => value.as_str().filter(|r| !r.is_empty()),
                None => None,
            }
        });
        joined_or_none(roles)
    }),
    AGE,
    ("Version", "string", 0, |o, _| text(&o["status"]["nodeInfo"]["kubeletVersion"])),
    ("Internal-IP", "string", 1, |o, _| address(o, "InternalIP")),
    ("External-IP", "string", 1, |o, _| address(o, "ExternalIP")),
    ("OS-Image", "string", 1, |o, _| or_unknown(&o["status"]["nodeInfo"]["osImage"])),
    ("Kernel-Version", "string", 1, |o, _| or_unknown(&o["status"]["nodeInfo"]["kernelVersion"])),
    ("Container-Runtime", "string", 1, |o, _| {
        or_unknown(&o["status"]["nodeInfo"]["containerRuntimeVersion"])
    }),
];
pub(crate) const SERVICE: &[Builtin] = &[
    ("Type", "string", 0, |o, _| o["spec"]["type"].clone()),
    ("Cluster-IP", "string", 0, |o, _| or_none(&o["spec"]["clusterIP"])),
    ("External-IP", "string", 0, |o, _| match o["spec"]["type"].as_str() {
        Some("ExternalName") => or_none(&o["spec"]["externalName"]),
        Some("LoadBalancer") if items(&o["spec"]["externalIPs"]).is_empty() => json!("<pending>"),
        _ => joined_or_none(texts(&o["spec"]["externalIPs"])),
    }),
    ("Port(s)", "string", 0, |o, _| {
        joined_or_none(items(&o["spec"]["ports"]).iter().map(|p| {
            let node = p["nodePort"].as_i64().filter(|n| *n > 0).map_or(String::new(), |n| format!(":{n}"));
            format!("{}{node}/{}", p["port"], p["protocol"].as_str().unwrap_or("TCP"))
        }))
    }),
    AGE,
    ("Selector", "string", 1, |o, _| labels(&o["spec"]["selector"])),
];
pub(crate) const ENDPOINTS: &[Builtin] = &[
    ("Endpoints", "string", 0, |o, _| {
        /// As many as kubectl shows before it says how many more there are.
        const SHOWN: usize = 3;
        let all: Vec<String> = items(&o["subsets"])
            .iter()
            .flat_map(|subset| {
                let addresses = || items(&subset["addresses"]).iter().filter_map(|a| a["ip"].as_str());
                let ports = items(&subset["ports"]);
                if ports.is_empty() {
                    return addresses().map(str::to_owned).collect::<Vec<_>>();
                }
                ports.iter().flat_map(|p| addresses().map(|ip| format!("{ip}:{}", p["port"]))).collect()
            })
            .collect();
        match all.len() {
            0 => json!("<none>"),
            count if count > SHOWN => {
                json!(format!(
                    "{} + {} more...",
                    all.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(","),
                    count - SHOWN
                ))
            }
            _ => json!(all.join(",")),
        }
    }),
    AGE,
];
pub(crate) const JOB: &[Builtin] = &[
    ("Status", "string", 0, |o, _| job_status(o)),
    ("Completions", "string", 0, |o, _| {
        let succeeded = o["status"]["succeeded"].as_i64().unwrap_or(0);
        json!(match (o["spec"]["completions"].as_i64(), o["spec"]["parallelism"].as_i64()) {
            (Some(wanted), _) => format!("{succeeded}/{wanted}"),
            (None, Some(parallel)) if parallel > 1 => format!("{succeeded}/1 of {parallel}"),
            (None, _) => format!("{succeeded}/1"),
        })
    }),
    ("Duration", "string", 0, |o, now| {
        let at = |key: &str| o["status"][key].as_str().and_then(|t| t.parse::<Timestamp>().ok());
        match (at("startTime"), at("completionTime")) {
            (None, _) => json!(""),
            (Some(start), end) => json!(human(end.unwrap_or(now).as_second() - start.as_second())),
        }
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(crate) const CRON_JOB: &[Builtin] = &[
    ("Schedule", "string", 0, |o, _| o["spec"]["schedule"].clone()),
    ("Timezone", "string", 0, |o, _| or_none(&o["spec"]["timeZone"])),
    ("Suspend", "boolean", 0, |o, _| json!(if o["spec"]["suspend"] == true { "True" } else { "False" })),
    ("Active", "integer", 0, |o, _| json!(items(&o["status"]["active"]).len())),
    ("Last Schedule", "string", 0, |o, now| age(o, "/status/lastScheduleTime", now)),
    AGE,
    ("Containers", "string", 1, |o, _| of_containers(&o["spec"]["jobTemplate"], "name")),
    ("Images", "string", 1, |o, _| of_containers(&o["spec"]["jobTemplate"], "image")),
    ("Selector", "string", 1, |o, _| selector(&o["spec"]["jobTemplate"]["spec"]["selector"])),
];
pub(crate) const DEPLOYMENT: &[Builtin] = &[
    ("Ready", "string", 0, |o, _| ready(o)),
    ("Up-to-date", "string", 0, |o, _| number(&o["status"]["updatedReplicas"])),
    ("Available", "string", 0, |o, _| number(&o["status"]["availableReplicas"])),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(crate) const STATEFUL_SET: &[Builtin] =
    &[("Ready", "string", 0, |o, _| ready(o)), AGE, CONTAINERS, IMAGES];
pub(crate) const DAEMON_SET: &[Builtin] = &[
    ("Desired", "integer", 0, |o, _| number(&o["status"]["desiredNumberScheduled"])),
    ("Current", "integer", 0, |o, _| number(&o["status"]["currentNumberScheduled"])),
    ("Ready", "integer", 0, |o, _| number(&o["status"]["numberReady"])),
    ("Up-to-date", "integer", 0, |o, _| number(&o["status"]["updatedNumberScheduled"])),
    ("Available", "integer", 0, |o, _| number(&o["status"]["numberAvailable"])),
    ("Node Selector", "string", 0, |o, _| labels(&o["spec"]["template"]["spec"]["nodeSelector"])),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(crate) const REPLICA_SET: &[Builtin] = &[
    ("Desired", "integer", 0, |o, _| number(&o["spec"]["replicas"])),
    ("Current", "integer", 0, |o, _| number(&o["status"]["replicas"])),
    ("Ready", "integer", 0, |o, _| number(&o["status"]["readyReplicas"])),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(crate) const CONTROLLER_REVISION: &[Builtin] = &[
    ("Controller", "string", 0, |o, _| {
        let owner = items(&o["metadata"]["ownerReferences"]).iter().find(|owner| owner["controller"] == true);
        let Some(owner) = owner else { return json!("<none>") };
        let part = |key: &str| owner[key].as_str().unwrap_or_default();
        // kind.group/name, in lower case as resources are.
        let group =
            part("apiVersion").split_once('/').map_or(String::new(), |(group, _)| format!(".{group}"));
        json!(format!("{}{group}/{}", part("kind").to_lowercase(), part("name")))
    }),
    ("Revision", "integer", 0, |o, _| number(&o["revision"])),
    AGE,
];
pub(crate) const CLAIM: &[Builtin] = &[
    ("Status", "string", 0, |o, _| {
        let going = !o["metadata"]["deletionTimestamp"].is_null();
        if going { json!("Terminating") } else { o["status"]["phase"].clone() }
    }),
    ("Volume", "string", 0, |o, _| text(&o["spec"]["volumeName"])),
    ("Capacity", "string", 0, |o, _| bound(o, text(&o["status"]["capacity"]["storage"]))),
    ("Access Modes", "string", 0, |o, _| bound(o, access_modes(&o["status"]["accessModes"]))),
    ("StorageClass", "string", 0, |o, _| text(&o["spec"]["storageClassName"])),
    ("VolumeAttributesClass", "string", 0, |o, _| {
        json!(o["spec"]["volumeAttributesClassName"].as_str().unwrap_or("<unset>"))
    }),
    AGE,
    ("VolumeMode", "string", 1, |o, _| json!(o["spec"]["volumeMode"].as_str().unwrap_or("<unset>"))),
];
pub(crate) const DISRUPTION_BUDGET: &[Builtin] = &[
    ("Min Available", "string", 0, |o, _| number_or_text(&o["spec"]["minAvailable"])),
    ("Max Unavailable", "string", 0, |o, _| number_or_text(&o["spec"]["maxUnavailable"])),
    ("Allowed Disruptions", "integer", 0, |o, _| number(&o["status"]["disruptionsAllowed"])),
    AGE,
];
pub(crate) const AUTOSCALER: &[Builtin] = &[
    ("Reference", "string", 0, |o, _| kind_and_name(&o["spec"]["scaleTargetRef"])),
    ("Targets", "string", 0, |o, _| {
        let wanted = items(&o["spec"]["metrics"]).iter().map(|metric| {
            let of = &metric["resource"];
            let name = of["name"].as_str().unwrap_or("<unknown>");
            let target = match of["target"]["averageUtilization"].as_i64() {
                Some(percent) => format!("{percent}%"),
                None => of["target"]["averageValue"].as_str().unwrap_or("<auto>").to_owned(),
            };
            format!("{name}: <unknown>/{target}")
        });
        let wanted: Vec<String> = wanted.collect();
        json!(if wanted.is_empty() { "<none>".to_owned() } else { wanted.join(", ") })
    }),
    ("MinPods", "string", 0, |o, _| match o["spec"]["minReplicas"].as_i64() {
        Some(least) => json!(least.to_string()),
        None => json!("<unset>"),
    }),
    ("MaxPods", "integer", 0, |o, _| number(&o["spec"]["maxReplicas"])),
    ("Replicas", "integer", 0, |o, _| number(&o["status"]["currentReplicas"])),
    AGE,
];
pub(crate) const PRIORITY_CLASS: &[Builtin] = &[
    ("Value", "integer", 0, |o, _| number(&o["value"])),
    ("Global-Default", "boolean", 0, |o, _| json!(o["globalDefault"] == true)),
    AGE,
    ("PreemptionPolicy", "string", 0, |o, _| {
        json!(o["preemptionPolicy"].as_str().unwrap_or("PreemptLowerPriority"))
    }),
];
pub(crate) const ADMISSION_POLICY: &[Builtin] = &[
    ("Validations", "integer", 0, |o, _| json!(count(&o["spec"]["validations"]))),
    ("ParamKind", "string", 0, |o, _| {
        let kind = &o["spec"]["paramKind"];
        let both = kind["apiVersion"].as_str().zip(kind["kind"].as_str());
        json!(both.map_or("<unset>".to_owned(), |(version, kind)| format!("{version}/{kind}")))
    }),
    AGE,
];
pub(crate) const ADMISSION_BINDING: &[Builtin] = &[
    ("PolicyName", "string", 0, |o, _| o["spec"]["policyName"].clone()),
    ("ParamRef", "string", 0, |o, _| {
        let reference = &o["spec"]["paramRef"];
        json!(match (reference["namespace"].as_str(), reference["name"].as_str()) {
            (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
            (None, Some(name)) => format!("*/{name}"),
            (_, None) if reference.is_null() => "<unset>".to_owned(),
            (_, None) => "*".to_owned(),
        })
    }),
    AGE,
];
pub(crate) const EVENT: &[Builtin] = &[
    ("Last Seen", "string", 0, |o, now| {
        seen(
            o,
            &["/series/lastObservedTime", "/lastTimestamp", "/deprecatedLastTimestamp", "/eventTime"],
            now,
        )
    }),
    ("Type", "string", 0, |o, _| text(&o["type"])),
    ("Reason", "string", 0, |o, _| text(&o["reason"])),
    ("Object", "string", 0, |o, _| {
        let about = event_object(o);
        let part = |key: &str| about[key].as_str().unwrap_or_default();
        json!(format!("{}/{}", part("kind").to_lowercase(), part("name")))
    }),
    ("Subobject", "string", 1, |o, _| text(&event_object(o)["fieldPath"])),
    ("Source", "string", 1, |o, _| {
        let part = |source: &Value| {
            let (component, host) =
                (source["component"].as_str()?, source["host"].as_str().unwrap_or_default());
            Some(if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") })
        };
        let reporter = ["reportingComponent", "reportingController"];
        let old = part(&o["source"]).or_else(|| part(&o["deprecatedSource"])).filter(|s| !s.is_empty());
        json!(old.unwrap_or_else(|| {
            reporter.iter().find_map(|key| o[*key].as_str()).unwrap_or_default().to_owned()
        }))
    }),
    ("Message", "string", 0, |o, _| text(if o["message"].is_string() { &o["message"] } else { &o["note"] })),
    ("First Seen", "string", 1, |o, now| {
        seen(o, &["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"], now)
    }),
    ("Count", "string", 1, |o, _| {
        let counts = [&o["series"]["count"], &o["count"], &o["deprecatedCount"]];
        json!(counts.iter().find_map(|c| c.as_i64().filter(|c| *c > 0)).unwrap_or(1))
    }),
    ("Name", "string", 1, |o, _| o["metadata"]["name"].clone()),
];

const CONTAINERS: Builtin = ("Containers", "string", 1, |o, _| of_containers(o, "name"));
const IMAGES: Builtin = ("Images", "string", 1, |o, _| of_containers(o, "image"));
const SELECTOR: Builtin = ("Selector", "string", 1, |o, _| selector(&o["spec"]["selector"]));

fn job_status(job: &Value) -> Value {
    let holds = |kind: &str| {
        items(&job["status"]["conditions"]).iter().any(|c| c["type"] == kind && c["status"] == "True")
    };
    let first = |kinds: &[&'static str]| kinds.iter().copied().find(|kind| holds(kind));
    let going = (!job["metadata"]["deletionTimestamp"].is_null()).then_some("Terminating");
    let later = || first(&["Suspended", "FailureTarget", "SuccessCriteriaMet"]);
    json!(first(&["Complete", "Failed"]).or(going).or_else(later).unwrap_or("Running"))
}

fn healthy(component: &Value) -> &Value {
    let healthy = items(&component["conditions"]).iter().find(|c| c["type"] == "Healthy");
    healthy.unwrap_or(&Value::Null)
}

fn kind_and_name(reference: &Value) -> Value {
    let part = |key: &str| reference[key].as_str().unwrap_or_default();
    json!(format!("{}/{}", part("kind"), part("name")))
}

fn subjects(binding: &Value, kind: &str) -> Value {
    let of_kind = items(&binding["subjects"]).iter().filter(|subject| subject["kind"] == kind);
    let names: Vec<String> = of_kind
        .map(|subject| {
            let name = subject["name"].as_str().unwrap_or_default();
            match subject["namespace"].as_str().filter(|_| kind == "ServiceAccount") {
                Some(namespace) => format!("{namespace}/{name}"),
                None => name.to_owned(),
            }
        })
        .collect();
    json!(names.join(", "))
}

fn address(node: &Value, kind: &str) -> Value {
    let found = items(&node["status"]["addresses"]).iter().find(|address| address["type"] == kind);
    or_none(found.map_or(&Value::Null, |address| &address["address"]))
}

/// What is seen only of a claim that has a volume.
fn bound(claim: &Value, shown: Value) -> Value {
    if claim["spec"]["volumeName"].as_str().is_some_and(|v| !v.is_empty()) { shown } else { json!("") }
}

fn access_modes(modes: &Value) -> Value {
    let short = texts(modes).map(|mode| match mode {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        other => other,
    });
    json!(short.collect::<Vec<_>>().join(","))
}

fn event_object(event: &Value) -> &Value {
    if event["involvedObject"].is_object() { &event["involvedObject"] } else { &event["regarding"] }
}

fn seen(event: &Value, pointers: &[&str], now: Timestamp) -> Value {
    let at = pointers.iter().find(|pointer| event.pointer(pointer).is_some_and(Value::is_string));
    at.map_or_else(|| json!("<unknown>"), |pointer| age(event, pointer, now))
}

/// A field of every container of a Pod template.
fn of_containers(owner: &Value, field: &str) -> Value {
    let containers = items(&owner["spec"]["template"]["spec"]["containers"]).iter();
    json!(containers.filter_map(|c| c[field].as_str()).collect::<Vec<_>>().join(","))
}

fn selector(selector: &Value) -> Value {
    or_none(&json!(selector::text(selector)))
}

fn labels(labels: &Value) -> Value {
    let all = labels.as_object().into_iter().flatten();
    joined_or_none(all.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())))
}

fn ready(object: &Value) -> Value {
    json!(format!("{}/{}", number(&object["status"]["readyReplicas"]), number(&object["spec"]["replicas"])))
}

fn number_or_text(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.to_string()),
        Value::String(text) => json!(text),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => json!("N/A"),
    }
}

fn or_unknown(value: &Value) -> Value {
    json!(value.as_str().filter(|t| !t.is_empty()).unwrap_or("<unknown>"))
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    items(value).iter().filter_map(Value::as_str)
}

fn joined_or_none<S: Borrow<str>>(texts: impl Iterator<Item = S>) -> Value {
    or_none(&json!(texts.collect::<Vec<S>>().join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(columns: &[Builtin], object: &Value) -> Vec<Value> {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        columns.iter().map(|(.., cell)| cell(object, now)).collect()
    }

    #[test]
    fn a_bindings_subjects_are_told_by_kind() {
        let binding = json!({"roleRef": {"kind": "Role", "name": "reader"}, "subjects": [
            {"kind": "User", "name": "jane"}, {"kind": "User", "name": "joe"},
            {"kind": "ServiceAccount", "name": "bot", "namespace": "ns"}]});
        assert_eq!(
            cells(BINDING, &binding),
            [json!("Role/reader"), json!("<none>"), json!("jane, joe"), json!(""), json!("ns/bot")]
        );
    }

    #[test]
    fn a_selector_reads_as_it_would_be_typed() {
        let selects = json!({"matchLabels": {"a": "b"}, "matchExpressions": [
            {"key": "k", "operator": "In", "values": ["x", "y"]}, {"key": "gone", "operator": "DoesNotExist"}]});
        assert_eq!(selector(&selects), "a=b,k in (x,y),!gone");
        assert_eq!(selector(&json!(null)), "<none>");
    }

    #[test]
    fn endpoints_are_shown_up_to_three() {
        let many = json!({"subsets": [{"addresses": [{"ip": "1.1.1.1"}, {"ip": "2.2.2.2"}],
            "ports": [{"port": 80}, {"port": 443}]}]});
        assert_eq!(cells(ENDPOINTS, &many)[0], "1.1.1.1:80,2.2.2.2:80,1.1.1.1:443 + 1 more...");
        assert_eq!(cells(ENDPOINTS, &json!({}))[0], "<none>");
    }
}
