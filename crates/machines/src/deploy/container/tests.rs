use super::*;
use crate::deploy::testing::{Case, key};
use pawl_api::deploy::{annotations, deploy_item, types};
use pawl_api::k8s::{ROLE, ROLE_BINDING, SERVICE_ACCOUNT};

const ITEM: pawl_api::meta::Kind = deploy_item::KIND;

#[expect(clippy::needless_pass_by_value, reason = "json! values read better unborrowed")]
fn item(config: Value) -> Case {
    let mut case = Case::with(&[JOB, POD, SERVICE_ACCOUNT, ROLE, ROLE_BINDING]);
    case.cluster.put(json!({"kind": "DeployItem", "metadata": {"name": "i"},
        "spec": {"type": types::CONTAINER, "config": config}}));
    case.settle();
    case
}

fn plain() -> Case {
    item(json!({"image": "example.invalid/tool:1", "args": ["--now"], "importValues": {"a": 1}}))
}

fn run(case: &mut Case) -> Value {
    let operation = json!({"metadata": {"annotations": {annotations::OPERATION: "reconcile"}}});
    case.cluster.edit(&ITEM, &key("i"), &operation);
    case.settle();
    status(case)
}

fn status(case: &Case) -> Value {
    case.cluster.get(&ITEM, &key("i")).unwrap()["status"].clone()
}

fn jobs(case: &Case) -> Vec<Arc<Object>> {
    case.cluster.world.list(&JOB, None)
}

/// The Job ends, after its sidecar has brought these out.
fn ends(case: &mut Case, condition: &str, out: &[(&str, &str)]) {
    let me = case.cluster.world.get(&ITEM, &key("i")).unwrap();
    let data: Map<String, Value> =
        out.iter().map(|(key, value)| ((*key).to_owned(), STANDARD.encode(value).into())).collect();
    case.cluster.edit(&SECRET, &manifests::out_key(&me), &json!({"data": data}));
    let job = jobs(case)[0].key();
    let conditions = json!([{"type": condition, "status": "True", "message": "because"}]);
    case.cluster.edit(&JOB, &job, &json!({"status": {"conditions": conditions}}));
    case.settle();
}

fn job_id(case: &Case) -> String {
    status(case)["jobID"].as_str().unwrap().to_owned()
}

#[test]
fn an_image_runs_once_per_job_and_its_exports_come_out() {
    let mut case = plain();
    assert_eq!(run(&mut case)["phase"], "Progressing");
    let made = jobs(&case);
    assert_eq!(made.len(), 1);
    let pod = &made[0].raw()["spec"]["template"]["spec"];
    assert_eq!(made[0].raw()["spec"]["suspend"], false, "it was let go");
    assert_eq!(status(&case)["providerStatus"]["job"]["uid"], made[0].uid());
    let env: BTreeMap<&str, &str> = pod["containers"][0]["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["name"].as_str().unwrap(), one["value"].as_str().unwrap()))
        .collect();
    assert_eq!(env["OPERATION"], "RECONCILE");
    let paths = ["IMPORTS_PATH", "EXPORTS_PATH", "STATE_PATH", "TARGET_PATH"];
    assert!(paths.iter().all(|path| env[path].starts_with(manifests::SHARED)));
    let job = job_id(&case);
    ends(&mut case, "Complete", &[(out::JOB, &job), (out::EXPORTS, "url: x")]);
    let ended = status(&case);
    assert_eq!(ended["phase"], "Succeeded", "{ended}");
    let export = case.cluster.get(&SECRET, &key(ended["exportRef"]["name"].as_str().unwrap())).unwrap();
    let text = STANDARD.decode(export["data"]["config"].as_str().unwrap()).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), json!({"url": "x"}));
    case.settle();
    assert_eq!(jobs(&case).len(), 1, "nothing runs again");
}

#[test]
fn the_token_is_the_sidecars_alone_and_may_patch_one_secret() {
    let mut case = plain();
    run(&mut case);
    let pod = jobs(&case)[0].raw()["spec"]["template"]["spec"].clone();
    assert_eq!(pod["automountServiceAccountToken"], false);
    let mounts = |container: &Value| container["volumeMounts"].to_string();
    assert!(!mounts(&pod["containers"][0]).contains("token"));
    assert!(!mounts(&pod["containers"][0]).contains(manifests::IN));
    assert!(mounts(&pod["initContainers"][1]).contains("token"));
    assert_eq!(pod["initContainers"][1]["restartPolicy"], "Always");
    let me = case.cluster.world.get(&ITEM, &key("i")).unwrap();
    let role = case.cluster.world.list(&ROLE, None)[0].raw()["rules"].clone();
    assert_eq!(role[0]["resourceNames"], json!([manifests::out_key(&me).name]));
    assert_eq!(role[0]["verbs"], json!(["get", "patch"]));
}

#[test]
fn a_job_is_written_down_before_it_runs() {
    let mut case = plain();
    let operation = json!({"metadata": {"annotations": {annotations::OPERATION: "reconcile"}}});
    case.cluster.edit(&ITEM, &key("i"), &operation);
    let machine = case.machines[1].clone();
    for _ in 0..20 {
        case.cluster.step(&machine, &ITEM, &key("i"));
        for job in jobs(&case) {
            let runs = job.raw()["spec"]["suspend"] == false;
            assert!(!runs || status(&case)["providerStatus"]["job"]["uid"] == job.uid());
        }
    }
    assert_eq!(jobs(&case)[0].raw()["spec"]["suspend"], false);
}

#[test]
fn a_failure_says_how_the_image_ended_and_retries_are_other_jobs() {
    let mut case = plain();
    case.cluster.edit(&ITEM, &key("i"), &json!({"spec": {"retries": 1}}));
    run(&mut case);
    let first = jobs(&case)[0].name().to_owned();
    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": first, "uid": jobs(&case)[0].uid(),
        "controller": true}]);
    case.cluster.put(json!({"kind": "Pod", "metadata": {"name": "p", "ownerReferences": owner},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
        "status": {"containerStatuses": [{"name": "main", "image": "x", "imageID": "x", "ready": false,
            "restartCount": 0, "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}]}}));
    let job = job_id(&case);
    ends(&mut case, "Failed", &[(out::JOB, &job), (out::STATE, "kept")]);
    let message = status(&case)["lastError"]["message"].as_str().unwrap().to_owned();
    assert_eq!(message, "the image exited with 3 (Error); see the log of Pod p");
    case.cluster.remove(&POD, &key("p"));
    case.wait(std::time::Duration::from_secs(5));
    assert_eq!(jobs(&case).len(), 1);
    assert_ne!(jobs(&case)[0].name(), first);
    let me = case.cluster.world.get(&ITEM, &key("i")).unwrap();
    let kept = case.cluster.get(&SECRET, &manifests::out_key(&me)).unwrap();
    assert_eq!(kept["data"][out::STATE], STANDARD.encode("kept"), "the state of a failed try is kept");
}

#[test]
fn what_was_not_brought_out_is_a_failure() {
    let mut case = plain();
    run(&mut case);
    ends(&mut case, "Complete", &[(out::JOB, "another")]);
    assert_eq!(status(&case)["lastError"]["reason"], "ExportMissing");
    let mut case = plain();
    run(&mut case);
    let job = job_id(&case);
    ends(&mut case, "Complete", &[(out::JOB, &job), (out::EXPORTS, "a: [")]);
    assert!(status(&case)["lastError"]["message"].as_str().unwrap().contains("no YAML"));
}

#[test]
fn a_removal_runs_the_image_once_more_and_then_the_item_is_gone() {
    let mut case = plain();
    run(&mut case);
    let job = job_id(&case);
    ends(&mut case, "Complete", &[(out::JOB, &job)]);
    case.cluster.delete(&ITEM, &key("i"), "Background");
    case.settle();
    assert_eq!(status(&case)["phase"], "Deleting");
    let pod = jobs(&case)[0].raw()["spec"]["template"]["spec"].clone();
    assert_eq!(pod["containers"][0]["env"][0]["value"], "DELETE");
    let job = job_id(&case);
    ends(&mut case, "Complete", &[(out::JOB, &job)]);
    assert!(case.cluster.get(&ITEM, &key("i")).is_none());
}

#[test]
fn an_interrupted_item_stops_its_job_before_it_frees_its_target() {
    let mut case = plain();
    run(&mut case);
    let held = |case: &Case| case.cluster.world.list(&crate::lock::LEASE, None).len();
    assert_eq!(held(&case), 1);
    let job = job_id(&case);
    let over = json!({"status": {"phase": "Failed", "jobIDFinished": job}});
    case.cluster.edit(&ITEM, &key("i"), &over);
    case.settle();
    assert_eq!((jobs(&case).len(), held(&case)), (0, 0));
}

#[test]
fn a_configuration_without_an_image_is_refused_and_hinders_no_removal() {
    let mut case = item(json!({"command": ["x"]}));
    let ended = run(&mut case);
    assert_eq!(ended["lastError"]["reason"], "ConfigurationError");
    case.cluster.delete(&ITEM, &key("i"), "Background");
    case.settle();
    assert!(case.cluster.get(&ITEM, &key("i")).is_none());
}

#[test]
fn what_landscaper_would_read_elsewhere_is_told_to_be_ignored() {
    let mut case = item(json!({"image": "x", "blueprint": {"ref": {}}}));
    run(&mut case);
    assert!(case.cluster.events.iter().any(|(_, _, note)| note.contains("spec.config.blueprint is ignored")));
}
