//! What does a Service get, and what may not change about it?
//!
//! Nothing forwards packets here; addresses are given out so that clients which read them find what they expect: one
//! address per Service and one port per exposed port, never shared.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::{Context, Hooks, NONE, fill, set};
use crate::validation::FieldError;

/// Addresses are of `10.96.0.0/16`, the upper half of which Kubernetes gives out by itself too.
const FIRST_ADDRESS: u32 = 0x0a60_0000;
const ADDRESSES: u32 = 1 << 16;
/// Kubernetes' default range of node ports: 30000 to 32767.
const FIRST_PORT: u32 = 30_000;
const PORTS: u32 = 2_768;
const HEADLESS: &str = "None";

pub(crate) const SERVICE: Hooks = Hooks {
    default: |object| {
        let Some(spec) = object.get_mut("spec") else { return };
        fill(spec, "type", json!("ClusterIP"));
        fill(spec, "sessionAffinity", json!("None"));
        if text(spec, "type") != "ExternalName" {
            fill(spec, "internalTrafficPolicy", json!("Cluster"));
        }
        if has_ports(spec) {
            fill(spec, "externalTrafficPolicy", json!("Cluster"));
        }
        if text(spec, "type") == "LoadBalancer" {
            fill(spec, "allocateLoadBalancerNodePorts", json!(true));
        }
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            fill(port, "protocol", json!("TCP"));
            let number = port.get("port").cloned().unwrap_or_default();
            fill(port, "targetPort", number);
        }
    },
    create: |object, context| {
        set(object, "status", json!({"loadBalancer": {}}));
        give(object, context);
    },
    update: |object, old, context| {
        keep(object, old);
        give(object, context);
    },
    validate,
    ..NONE
};

/// Gives what is not given yet.
fn give(object: &mut Value, context: &Context<'_>) {
    let uid = object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(spec) = object.get_mut("spec") else { return };
    if text(spec, "type") == "ExternalName" {
        return;
    }
    let taken = || -> Vec<Value> {
        (context.siblings)().iter().filter_map(|text| serde_json::from_slice(text).ok()).collect()
    };
    if text(spec, "clusterIP").is_empty() {
        let used: HashSet<String> = strings(&taken(), "/spec/clusterIP");
        let address = free(&uid, ADDRESSES, |n| {
            // The first is the network's own.
            let address = Ipv4Addr::from_bits(FIRST_ADDRESS + n.max(1)).to_string();
            (!used.contains(&address)).then_some(address)
        });
        set(spec, "clusterIP", json!(address));
    }
    let address = spec.get("clusterIP").cloned().unwrap_or_default();
    fill(spec, "clusterIPs", json!([address]));
    fill(spec, "ipFamilies", json!(["IPv4"]));
    fill(spec, "ipFamilyPolicy", json!("SingleStack"));
    if !has_ports(spec) {
        return;
    }
    let mut used: Option<HashSet<u64>> = None;
    for (at, port) in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten().enumerate() {
        if port.get("nodePort").and_then(Value::as_u64).is_some_and(|port| port > 0) {
            continue;
        }
        let used = used.get_or_insert_with(|| node_ports(&taken()));
        let number = free(&format!("{uid}/{at}"), PORTS, |n| {
            let port = u64::from(FIRST_PORT + n);
            (!used.contains(&port)).then_some(port)
        });
        used.extend(number);
        set(port, "nodePort", json!(number));
    }
}

/// The first that is free, from a place that follows from who asks: the same whenever it is asked.
fn free<T>(seed: &str, of: u32, is_free: impl Fn(u32) -> Option<T>) -> Option<T> {
    let mut hasher = DefaultHasher::new();
    seed.hash(&mut hasher);
    let start = u32::try_from(hasher.finish() % u64::from(of)).unwrap_or_default();
    (0..of).find_map(|step| is_free((start + step) % of))
}

/// What an update leaves out stays as it was.
fn keep(object: &mut Value, old: &Value) {
    let (Some(spec), Some(before)) = (object.get_mut("spec"), old.get("spec")) else { return };
    if text(spec, "type") == "ExternalName" || text(before, "type") == "ExternalName" {
        return;
    }
    for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let given = spec.get(key).is_some_and(|value| value.as_str() != Some(""));
        if let Some(value) = before.get(key).filter(|_| !given) {
            set(spec, key, value.clone());
        }
    }
    if !has_ports(spec) {
        return;
    }
    let same = |a: &Value, b: &Value| ["port", "protocol"].iter().all(|key| a.get(*key) == b.get(*key));
    let ports_before = before.get("ports").and_then(Value::as_array).cloned().unwrap_or_default();
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let known = ports_before.iter().find(|one| same(one, port)).and_then(|one| one.get("nodePort"));
        if let Some(known) = known {
            fill(port, "nodePort", known.clone());
        }
    }
}

fn validate(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    let mut errors = Vec::new();
    let Some(spec) = object.get("spec") else { return errors };
    let kind = text(spec, "type");
    if !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported("spec.type", &json!(kind), &TYPES));
    }
    let address = text(spec, "clusterIP");
    if kind == "ExternalName" {
        if text(spec, "externalName").is_empty() {
            errors.push(FieldError::required("spec.externalName", ""));
        }
    } else {
        let no_ports = spec.get("ports").and_then(Value::as_array).is_none_or(Vec::is_empty);
        if no_ports && address != HEADLESS {
            errors.push(FieldError::required("spec.ports", ""));
        }
        if address != HEADLESS && !address.is_empty() && address.parse::<std::net::IpAddr>().is_err() {
            let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.push(FieldError::invalid("spec.clusterIPs[0]", &json!(address), why));
        }
    }
    let before = old.and_then(|old| old.get("spec"));
    if let Some(before) =
        before.filter(|before| text(before, "type") != "ExternalName" && kind != "ExternalName")
        && !text(before, "clusterIP").is_empty()
        && text(before, "clusterIP") != address
    {
        let why = "may not change once set";
        errors.push(FieldError::invalid("spec.clusterIPs[0]", &json!([address]), why));
    }
    errors
}

/// Whether its ports are open on nodes.
fn has_ports(spec: &Value) -> bool {
    matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
}

fn strings(objects: &[Value], pointer: &str) -> HashSet<String> {
    objects.iter().filter_map(|one| one.pointer(pointer)?.as_str().map(str::to_owned)).collect()
}

fn node_ports(objects: &[Value]) -> HashSet<u64> {
    let ports = objects.iter().filter_map(|one| one.pointer("/spec/ports")?.as_array());
    ports.flatten().filter_map(|port| port.get("nodePort")?.as_u64()).collect()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
    fn made(spec: Value, siblings: &[Value]) -> Value {
        let mut object = json!({"metadata": {"uid": "u", "name": "web"}, "spec": spec});
        (SERVICE.default)(&mut object);
        let siblings = || siblings.iter().map(|one| one.to_string().into()).collect();
        (SERVICE.create)(&mut object, &Context { now: jiff::Timestamp::UNIX_EPOCH, siblings: &siblings });
        object
    }

    #[test]
    fn addresses_and_ports_are_given_out_once() {
        let ports = json!({"type": "NodePort", "ports": [{"port": 80}, {"port": 81}]});
        let first = made(ports.clone(), &[]);
        let second = made(ports, std::slice::from_ref(&first));
        assert_ne!(first["spec"]["clusterIP"], second["spec"]["clusterIP"]);
        let all = node_ports(&[first.clone(), second]);
        assert_eq!(all.len(), 4, "{all:?}");
        assert!(all.iter().all(|port| (30_000..=32_767).contains(port)));
        assert!(first["spec"]["clusterIP"].as_str().unwrap().starts_with("10.96."));
        assert_eq!(first["spec"]["clusterIPs"], json!([first["spec"]["clusterIP"]]));
        let headless = made(json!({"clusterIP": "None"}), &[]);
        assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
        assert_eq!(
            made(json!({"type": "ExternalName", "externalName": "a.b"}), &[])["spec"].get("clusterIP"),
            None
        );
    }

    #[test]
    fn an_update_keeps_what_was_given_and_may_not_change_it() {
        let old = made(json!({"type": "NodePort", "ports": [{"port": 80}]}), &[]);
        let mut new =
            json!({"metadata": {"uid": "u"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        (SERVICE.default)(&mut new);
        (SERVICE.update)(&mut new, &old, &Context { now: jiff::Timestamp::UNIX_EPOCH, siblings: &Vec::new });
        assert_eq!(new["spec"], old["spec"]);
        assert!(validate(&new, Some(&old)).is_empty());
        new["spec"]["clusterIP"] = "10.1.1.1".into();
        assert_eq!(validate(&new, Some(&old)).len(), 1);
    }
}
