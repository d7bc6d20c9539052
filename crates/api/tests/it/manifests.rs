//! Are manifests written for the originals read without loss?

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_cel::apply_defaults;
use pawl_api::{deploy, git, pawl, remedy};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::checker::problems;
use crate::{schema_of, schemas};

fn all() -> Vec<Value> {
    [
        include_str!("manifests/git.yaml"),
        include_str!("manifests/deploy.yaml"),
        include_str!("manifests/remedy.yaml"),
        include_str!("manifests/pawl.yaml"),
    ]
    .iter()
    .flat_map(|file| file.split("\n---\n"))
    .map(|document| serde_saphyr::from_str(document).unwrap())
    .collect()
}

fn round_trip<K: DeserializeOwned + Serialize>(object: &Value) -> Result<Value, String> {
    let typed: K = serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
    serde_json::to_value(typed).map_err(|error| error.to_string())
}

/// Reads an object into its type and writes it again.
fn through_its_type(object: &Value) -> Value {
    try_decode(object).unwrap_or_else(|error| panic!("{error} in {object:#}"))
}

pub(crate) fn try_decode(object: &Value) -> Result<Value, String> {
    match object["kind"].as_str().unwrap() {
        "Repository" => round_trip::<git::Repository>(object),
        "Branch" => round_trip::<git::Branch>(object),
        "WorkflowTemplate" => round_trip::<git::WorkflowTemplate>(object),
        "Workflow" => round_trip::<git::Workflow>(object),
        "Installation" => round_trip::<deploy::Installation>(object),
        "Execution" => round_trip::<deploy::Execution>(object),
        "DeployItem" => round_trip::<deploy::DeployItem>(object),
        "Target" => round_trip::<deploy::Target>(object),
        "DataObject" => round_trip::<deploy::DataObject>(object),
        "RemediationPlaybook" => round_trip::<remedy::RemediationPlaybook>(object),
        "RemediationRequest" => round_trip::<remedy::RemediationRequest>(object),
        "WorkflowExecution" => round_trip::<remedy::WorkflowExecution>(object),
        "KubernetesExecution" => round_trip::<remedy::KubernetesExecution>(object),
        "Freeze" => round_trip::<pawl::Freeze>(object),
        "Approval" => round_trip::<pawl::Approval>(object),
        kind => panic!("{kind} has no type"),
    }
}

/// The part of an object that its schema is about.
fn body(object: &Value) -> Value {
    let mut body = object.clone();
    for key in ["apiVersion", "kind", "metadata"] {
        body.as_object_mut().unwrap().remove(key);
    }
    body
}

#[test]
fn there_is_an_example_of_every_kind() {
    let examples = all();
    for (kind, _) in schemas() {
        assert!(examples.iter().any(|example| example["kind"] == kind.as_str()), "{kind}");
    }
}

#[test]
fn every_example_fits_its_schema_and_its_rules() {
    for example in all() {
        let kind = example["kind"].as_str().unwrap();
        let schema = schema_of(kind);
        assert_eq!(problems(schema, &body(&example), kind), [""; 0], "{example:#}");
        let answer = kube_cel::Validator::new().validate(schema, &body(&example), None);
        assert!(answer.is_ok(), "{kind}: {answer:?}");
    }
}

// What an API server stores is what was written plus the schema's defaults; reading and writing that must not
// change it, or the first update by a controller would.
#[test]
fn an_object_read_and_written_is_the_object_that_is_stored() {
    for example in all() {
        let kind = example["kind"].as_str().unwrap();
        let mut stored = apply_defaults(schema_of(kind), &body(&example));
        for key in ["apiVersion", "kind", "metadata"] {
            stored[key] = example[key].clone();
        }
        assert_eq!(through_its_type(&stored), stored, "{kind}");
    }
}

#[test]
fn an_object_read_without_the_schemas_defaults_gets_the_same_ones() {
    for example in all() {
        let kind = example["kind"].as_str().unwrap();
        let written = through_its_type(&example);
        assert_eq!(written, through_its_type(&written), "{kind}");
        let defaulted = apply_defaults(schema_of(kind), &body(&example));
        assert_eq!(body(&written)["spec"], defaulted["spec"], "{kind}");
    }
}

#[test]
fn what_we_write_fits_the_schema() {
    for example in all() {
        let kind = example["kind"].as_str().unwrap();
        assert_eq!(problems(schema_of(kind), &body(&through_its_type(&example)), kind), [""; 0]);
    }
}

#[test]
fn a_status_is_read_leniently() {
    fn lenient<S: DeserializeOwned + Serialize + Default + PartialEq + std::fmt::Debug>() {
        let read: S = serde_json::from_value(json!({"aFieldOfTomorrow": {"x": 1}})).unwrap();
        assert_eq!(read, S::default());
        assert_eq!(serde_json::to_value(S::default()).unwrap(), json!({}), "an empty status says nothing");
    }
    lenient::<git::RepositoryStatus>();
    lenient::<git::BranchStatus>();
    lenient::<git::WorkflowTemplateStatus>();
    lenient::<git::WorkflowStatus>();
    lenient::<deploy::InstallationStatus>();
    lenient::<deploy::ExecutionStatus>();
    lenient::<deploy::DeployItemStatus>();
    lenient::<remedy::RemediationPlaybookStatus>();
    lenient::<remedy::RemediationRequestStatus>();
    lenient::<remedy::WorkflowExecutionStatus>();
    lenient::<remedy::KubernetesExecutionStatus>();
    lenient::<pawl::FreezeStatus>();
}

#[test]
fn a_job_keeps_the_fields_this_version_does_not_know() {
    let template = all().into_iter().find(|example| example["kind"] == "WorkflowTemplate").unwrap();
    let typed: git::WorkflowTemplate = serde_json::from_value(template).unwrap();
    assert_eq!(typed.spec.job.0["aFieldOfTomorrow"], json!({"kept": true}));
    assert_eq!(typed.spec.job.parse().unwrap().backoff_limit, Some(2));
}

#[test]
fn times_are_written_as_an_api_server_gives_them_back() {
    let time = Time(jiff::Timestamp::from_second(1_767_225_600).unwrap());
    assert_eq!(serde_json::to_value(time).unwrap(), "2026-01-01T00:00:00Z");
}
