//! Would an API server take our CRDs?

use std::collections::BTreeSet;

use kube_cel::Validator;
use pawl_api::meta::Kind;
use pawl_api::{crds, deploy, git, pawl, remedy};
use serde_json::{Value, json};

use crate::checker::problems;
use crate::{schema_of, schemas, walk};

/// `kubectl apply` keeps what it applied in an annotation, and all annotations together may have this many bytes.
const MAX_ANNOTATIONS: usize = 256 * 1024;

#[test]
fn the_kinds_are_named_as_their_crds_are() {
    let kinds: Vec<Kind> = crds::all()
        .iter()
        .map(|crd| Kind {
            group: crd.spec.group.clone().into(),
            version: crd.spec.versions[0].name.clone().into(),
            kind: crd.spec.names.kind.clone().into(),
            plural: crd.spec.names.plural.clone().into(),
            namespaced: crd.spec.scope == "Namespaced",
        })
        .collect();
    assert_eq!(
        kinds,
        [
            git::repository::KIND,
            git::branch::KIND,
            git::workflow_template::KIND,
            git::workflow::KIND,
            deploy::installation::KIND,
            deploy::execution::KIND,
            deploy::deploy_item::KIND,
            deploy::target::KIND,
            deploy::data_object::KIND,
            remedy::remediation_playbook::KIND,
            remedy::remediation_request::KIND,
            remedy::workflow_execution::KIND,
            remedy::kubernetes_execution::KIND,
            pawl::freeze::KIND,
            pawl::approval::KIND,
        ]
    );
}

#[test]
fn no_two_kinds_share_a_short_name_and_all_are_in_the_category() {
    // Short names of kubectl's own that a clash would shadow.
    let mut seen: BTreeSet<String> = [
        "po", "svc", "cm", "ns", "no", "deploy", "ds", "sts", "rs", "pvc", "pv", "sa", "ev", "cj", "ep", "sc",
    ]
    .map(str::to_owned)
    .into();
    for crd in crds::all() {
        let names = &crd.spec.names;
        assert_eq!(names.categories.as_deref(), Some(&["pawl".to_owned()][..]), "{}", names.kind);
        for short in names.short_names.iter().flatten() {
            assert!(seen.insert(short.clone()), "{short} is taken");
        }
    }
}

#[test]
fn a_plain_client_side_apply_of_every_crd_works() {
    for crd in crds::all() {
        let text = serde_json::to_string(&crd).unwrap();
        // The annotation holds the whole object once more, as compact JSON.
        assert!(text.len() < MAX_ANNOTATIONS * 3 / 4, "{} has {} bytes", crd.spec.names.kind, text.len());
    }
}

#[test]
fn every_schema_is_structural() {
    const KNOWN: [&str; 25] = [
        "type",
        "description",
        "properties",
        "items",
        "additionalProperties",
        "required",
        "enum",
        "default",
        "format",
        "pattern",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minimum",
        "maximum",
        "minProperties",
        "maxProperties",
        "not",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "anyOf",
        "oneOf",
    ];
    for (kind, schema) in schemas() {
        walk(kind, schema, &mut |at, node| {
            let fields = node.as_object().unwrap();
            for key in fields.keys() {
                assert!(KNOWN.contains(&key.as_str()), "{at}: {key} is not allowed or not wanted");
            }
            let open = node["x-kubernetes-preserve-unknown-fields"] == true;
            let type_ = node["type"].as_str();
            assert!(type_.is_some() || open, "{at} has no type");
            assert_eq!(type_ == Some("array"), node["items"].is_object(), "{at}: arrays have items");
            let maps = node["additionalProperties"].is_object();
            assert!(!(maps && node["properties"].is_object()), "{at} is a map and a struct");
            if type_ == Some("object") {
                assert!(maps || open || node["properties"].is_object(), "{at} would keep nothing");
            }
            for key in ["not", "anyOf", "oneOf"] {
                only_values(at, &node[key]);
            }
            for name in node["required"].as_array().into_iter().flatten() {
                assert!(
                    node["properties"][name.as_str().unwrap()].is_object(),
                    "{at}: {name} is not declared"
                );
            }
            list_keys(at, node);
        });
    }
}

/// Inside `not` and its like only values may be restricted.
fn only_values(at: &str, node: &Value) {
    for nested in node.as_array().cloned().unwrap_or_else(|| vec![node.clone()]) {
        for key in nested.as_object().into_iter().flat_map(|fields| fields.keys()) {
            assert!(
                ["required", "minProperties", "maxProperties"].contains(&key.as_str()),
                "{at}: {key} in a value check"
            );
        }
    }
}

/// The keys of a list that is a map are there and plain; the items of a set are plain.
fn list_keys(at: &str, node: &Value) {
    let plain = |schema: &Value| matches!(schema["type"].as_str(), Some("string" | "integer" | "boolean"));
    match node["x-kubernetes-list-type"].as_str() {
        Some("map") => {
            for key in node["x-kubernetes-list-map-keys"].as_array().unwrap() {
                let item = &node["items"];
                assert!(plain(&item["properties"][key.as_str().unwrap()]), "{at}: {key} is not plain");
                assert!(item["required"].as_array().unwrap().contains(key), "{at}: {key} is not required");
            }
        }
        Some("set") => assert!(plain(&node["items"]), "{at}: the items of a set are plain"),
        _ => {}
    }
}

#[test]
fn every_field_is_explained() {
    for (kind, schema) in schemas() {
        walk(kind, schema, &mut |at, node| {
            // Items of lists and values of maps are explained by the field they are in.
            if !at.ends_with(']') {
                let text = node["description"].as_str().unwrap_or_default();
                assert!(!text.trim().is_empty(), "kubectl explain says nothing about {at}");
            }
        });
    }
}

#[test]
fn everything_a_user_can_write_has_a_limit() {
    for (kind, schema) in schemas() {
        walk(kind, schema, &mut |at, node| {
            let has = |key: &str| !node[key].is_null();
            match node["type"].as_str() {
                Some("string") => {
                    // The text of a blueprint is limited by the object that holds it.
                    let limited = has("maxLength") || has("enum") || has("format");
                    assert!(limited || at.ends_with(".blueprint.yaml"), "{at} has no maxLength");
                }
                // Beyond the schema's own bounds a number would not decode.
                Some("integer") if node["format"] == "int32" && at.contains(".spec.") => {
                    assert!(has("maximum") && has("minimum"), "{at} has no bounds");
                }
                Some("array") => assert!(has("maxItems"), "{at} has no maxItems"),
                Some("object") if node["additionalProperties"].is_object() => {
                    assert!(has("maxProperties"), "{at} has no maxProperties");
                }
                _ => {}
            }
        });
    }
}

#[test]
fn every_default_fits_its_own_schema_and_every_pattern_compiles() {
    for (kind, schema) in schemas() {
        walk(kind, schema, &mut |at, node| {
            if let Some(default) = node.get("default") {
                assert_eq!(problems(node, default, at), [""; 0]);
            }
            if let Some(pattern) = node["pattern"].as_str() {
                regex::Regex::new(pattern).unwrap();
            }
        });
    }
}

#[test]
fn every_rule_compiles_and_says_what_is_wrong() {
    let mut count = 0;
    for (kind, schema) in schemas() {
        walk(kind, schema, &mut |at, node| {
            for rule in node["x-kubernetes-validations"].as_array().into_iter().flatten() {
                count += 1;
                let text = rule["rule"].as_str().unwrap();
                kube_cel::cel::Program::compile(text).unwrap_or_else(|error| panic!("{at}: {text}: {error}"));
                assert!(rule["message"].as_str().unwrap().len() > 10, "{at}: {text}");
                // Items of a list have no old self to compare with.
                assert!(!text.contains("oldSelf") || !at.contains("[]"), "{at}: {text}");
            }
        });
    }
    assert!(count > 15, "only {count} rules");
}

/// What the rules of a kind say to a spec, given the one before.
fn said(kind: &str, spec: &Value, old: Option<&Value>) -> String {
    let (new, old) = (json!({ "spec": spec }), old.map(|old| json!({ "spec": old })));
    match Validator::new().validate(schema_of(kind), &new, old.as_ref()) {
        Ok(()) => String::new(),
        Err(errors) => {
            errors.as_slice().iter().map(|error| error.message.clone()).collect::<Vec<_>>().join("; ")
        }
    }
}

#[test]
fn an_execution_takes_exactly_the_parameters_of_its_action() {
    let scale = json!({"deployment": "web", "namespace": "prod", "replicas": 3});
    let good = json!({"action": "scale_deployment", "parameters": {"scaleDeployment": scale}});
    assert_eq!(said("KubernetesExecution", &good, None), "");
    for parameters in [
        json!({}),
        json!({"cordonNode": {"node": "n"}}),
        json!({"scaleDeployment": scale, "cordonNode": {"node": "n"}}),
    ] {
        let bad = json!({"action": "scale_deployment", "parameters": parameters});
        assert!(
            said("KubernetesExecution", &bad, None).contains("exactly the member of the action"),
            "{bad}"
        );
    }
}

#[test]
fn only_the_approval_of_an_execution_may_change() {
    let before = json!({"action": "cordon_node", "parameters": {"cordonNode": {"node": "a"}}});
    let mut approved = before.clone();
    approved["approvalReceived"] = json!(true);
    assert_eq!(said("KubernetesExecution", &approved, Some(&before)), "");
    for (field, value) in [
        ("parameters", json!({"cordonNode": {"node": "b"}})),
        ("dryRun", json!(true)),
        ("timeout", json!("1m")),
        ("maxRetries", json!(1)),
    ] {
        let mut changed = before.clone();
        changed[field] = value;
        assert!(said("KubernetesExecution", &changed, Some(&before)).contains("immutable"), "{field}");
    }
}

#[test]
fn every_field_of_an_execution_but_the_approval_is_in_the_rule_that_freezes_it() {
    let schema = schema_of("KubernetesExecution");
    let spec = &schema["properties"]["spec"];
    let rule = spec["x-kubernetes-validations"][1]["rule"].as_str().unwrap();
    for field in spec["properties"].as_object().unwrap().keys() {
        assert_eq!(rule.contains(&format!("oldSelf.{field})")), field != "approvalReceived", "{field}");
    }
}

#[test]
fn what_must_not_change_does_not() {
    let workflow = json!({"owner": "a", "repository": "r", "branch": "b", "sha": "0".repeat(40), "template": "t", "path": "."});
    let run = json!({"workflowRef": {"workflowId": "w", "containerImage": "i"}, "targetResource": "a/deployment/b"});
    let approval = json!({"executionRef": {"name": "e"}, "decision": "approve", "approver": {"username": "u"}, "digest": "d"});
    let item = json!({"type": "t"});
    for (kind, before, field, value) in [
        ("Workflow", &workflow, "sha", json!("1".repeat(40))),
        ("Workflow", &workflow, "attempt", json!(2)),
        ("WorkflowExecution", &run, "targetResource", json!("a/deployment/c")),
        ("WorkflowExecution", &run, "engine", json!("job")),
        ("Approval", &approval, "decision", json!("reject")),
        ("DeployItem", &item, "type", json!("u")),
    ] {
        let mut after = before.clone();
        after[field] = value;
        assert!(said(kind, &after, Some(before)).contains("immutable"), "{kind}.{field}");
        assert_eq!(said(kind, before, Some(before)), "", "{kind}");
    }
    let mut parameters = workflow.clone();
    parameters["parameters"] = json!({"executionUnit": "file"});
    assert_eq!(said("Workflow", &parameters, Some(&workflow)), "");
}

#[test]
fn bad_input_is_refused_with_a_reason() {
    let run = |parameters: Value| json!({"workflowRef": {"workflowId": "w", "containerImage": "i"}, "targetResource": "a/b/c", "parameters": parameters});
    let step =
        |step: Value| json!({"targetResource": {"kind": "Pod", "name": "p"}, "plan": {"steps": [step]}});
    let import = |import: Value| json!({"blueprint": {"inline": {"filesystem": {"blueprint.yaml": "x"}}}, "imports": {"data": [import]}});
    for (kind, spec, says) in [
        ("WorkflowExecution", run(json!({"GOOD_1": "x"})), ""),
        ("WorkflowExecution", run(json!({"bad": "x"})), "UPPER_SNAKE_CASE"),
        ("RemediationRequest", step(json!({"name": "s"})), "either workflow or action"),
        ("Installation", import(json!({"name": "i", "dataRef": "d"})), ""),
        ("Installation", import(json!({"name": "i"})), "exactly one of"),
        (
            "Installation",
            import(json!({"name": "i", "dataRef": "d", "secretRef": {"name": "s"}})),
            "exactly one of",
        ),
        ("Execution", json!({"deployItems": [], "deployItemsCompressed": ""}), "either deployItems"),
        ("Freeze", json!({"reason": "r"}), "either a schedule"),
        ("Freeze", json!({"reason": "r", "until": "2026-01-01T00:00:00Z"}), ""),
        (
            "Freeze",
            json!({"reason": "r", "from": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}),
            "from must be before until",
        ),
    ] {
        let answer = said(kind, &spec, None);
        assert!(answer.contains(says) && says.is_empty() == answer.is_empty(), "{kind}: {answer:?}");
    }
}
