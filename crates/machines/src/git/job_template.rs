//! Which Job does a Workflow run? The template's, hardened, told what it is about, and never more powerful than its
//! namespace allows.
//!
//! The Job is built as JSON, so that fields this version does not know reach the API server as they were written.

use std::collections::BTreeSet;

use pawl_api::git::workflow::{CHECK_RUN, HELD_FOR, WORKSPACE_VOLUME, parameters};
use pawl_api::git::workflow_template::{DEFAULT_MOUNT_PATH, Job};
use pawl_api::git::{BranchSpec, WorkflowSpec, labels};
use pawl_api::meta::names;
use pawl_api::pawl::labels::ALLOW_PRIVILEGED;
use serde_json::{Map, Value, json};

use crate::cluster::namespace::{NAMESPACE, is_yes};
use crate::hardening::{Hardening, is_true};
use crate::json::{default, object};
use crate::object::{Key, Object};
use crate::view::View;

/// Why there is no Job to be made of a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    #[error("the template's job is not a JobSpec: {0}")]
    NotAJob(String),
    #[error(
        "{} not allowed here; label the namespace pawl.dev/allow-privileged=true to allow it",
        join(.0)
    )]
    TooPowerful(Vec<String>),
}

fn join(fields: &[String]) -> String {
    format!("{} {}", fields.join(", "), if fields.len() == 1 { "is" } else { "are" })
}

/// What a Job is made from.
#[derive(Clone, Copy, Debug)]
pub struct Ingredients<'a> {
    pub workflow: &'a Object,
    pub spec: &'a WorkflowSpec,
    pub branch: &'a BranchSpec,
    pub job: &'a Job,
    /// The namespace is labelled for Pods that are as good as root on their node.
    pub allow_privileged: bool,
    /// The check run that was made for it: found again on the Job, should the status that says so be lost.
    pub check_run: Option<i64>,
    /// The Repository of whose places it takes one.
    pub repository_uid: Option<&'a str>,
}

/// Whether a namespace allows its Jobs more than the restricted Pod settings.
pub fn allows_privileged(view: &dyn View, namespace: Option<&str>) -> bool {
    let namespace = view.get(&NAMESPACE, &Key::new(None, namespace.unwrap_or_default()));
    namespace.is_some_and(|namespace| is_yes(namespace.label(ALLOW_PRIVILEGED)))
}

/// Whether a Job can be made of a template, without making it: whoever waits for its turn asks this each time.
///
/// # Errors
/// When the template holds no Job, or one that asks for more than the namespace allows: all of it is named.
pub fn check(job: &Job, allow_privileged: bool) -> Result<(), BuildError> {
    job.parse().map_err(|error| BuildError::NotAJob(error.to_string()))?;
    let pod = job.0.get("template").and_then(|template| template.get("spec")).unwrap_or(&Value::Null);
    if list(pod, "containers").next().is_none() {
        return Err(BuildError::NotAJob("template.spec.containers: at least one is needed".to_owned()));
    }
    let excess = too_powerful(pod);
    if allow_privileged || excess.is_empty() { Ok(()) } else { Err(BuildError::TooPowerful(excess)) }
}

/// The Job of a Workflow, of its name and controlled by it.
///
/// # Errors
/// When [`check`] finds something.
pub fn build(from: Ingredients<'_>) -> Result<Value, BuildError> {
    check(from.job, from.allow_privileged)?;
    let mut spec = Value::Object(from.job.0.clone());
    default(&mut spec, "backoffLimit", json!(0));
    // A Pod that is on its way out may still act on the target: its replacement waits until it has ended.
    default(&mut spec, "podReplacementPolicy", json!("Failed"));
    let labels = job_labels(&from);
    let template = object(&mut spec, "template");
    let pod_labels = object(object(template, "metadata"), "labels");
    for (key, value) in &labels {
        pod_labels[key.as_str()] = value.clone();
    }
    let pod = object(template, "spec");
    harden_pod(pod, from.branch);
    let env = environment(&from);
    let mount = workspace(&from, pod);
    for container in containers(pod) {
        Hardening::USER_IMAGE.apply_to_container(container);
        inject(container, &env, mount.as_ref());
    }
    let (name, namespace) = (from.workflow.name(), from.workflow.namespace());
    let owner = from.workflow.controller_reference();
    let check_run = from.check_run.map(|id| (CHECK_RUN.to_owned(), id.to_string().into()));
    let annotations: Map<String, Value> = check_run.into_iter().collect();
    let held_for = from.repository_uid.map(|uid| (HELD_FOR.to_owned(), uid.into()));
    let labels: Map<String, Value> = labels.into_iter().chain(held_for).collect();
    let metadata = json!({"name": name, "namespace": namespace, "labels": labels, "annotations": annotations,
        "ownerReferences": [owner]});
    Ok(json!({"metadata": metadata, "spec": spec}))
}

/// The names of the Secrets whose values the containers of a Job can see, and therefore print. What only pulls images
/// never reaches a container.
pub fn secrets(job: &Value) -> BTreeSet<String> {
    let Some(pod) = job.pointer("/spec/template/spec") else { return BTreeSet::new() };
    let containers = ["initContainers", "containers"].into_iter().flat_map(|field| list(pod, field));
    let in_env = containers.flat_map(|container| {
        let from = list(container, "envFrom").filter_map(|one| one.pointer("/secretRef/name"));
        let single = list(container, "env").filter_map(|one| one.pointer("/valueFrom/secretKeyRef/name"));
        from.chain(single)
    });
    let mounted = list(pod, "volumes").flat_map(|volume| {
        let whole = volume.pointer("/secret/secretName");
        let sources = volume.pointer("/projected/sources").and_then(Value::as_array);
        let projected = sources.into_iter().flatten().filter_map(|one| one.pointer("/secret/name"));
        whole.into_iter().chain(projected)
    });
    in_env.chain(mounted).filter_map(Value::as_str).map(str::to_owned).collect()
}

fn job_labels(from: &Ingredients<'_>) -> Map<String, Value> {
    let WorkflowSpec { owner, repository, sha, template, .. } = from.spec;
    [
        (labels::OWNER, owner),
        (labels::REPO_NAME, repository),
        (labels::SHA, sha),
        (labels::TEMPLATE, template),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), names::label_value(value).into()))
    .collect()
}

/// The thirteen variables every container gets, `$` doubled: what is in them comes from branch names and paths, and
/// Kubernetes would expand `$(SECRET)` in them (I10).
fn environment(from: &Ingredients<'_>) -> Vec<(&'static str, String)> {
    let Ingredients { workflow, spec, branch, .. } = from;
    let parameter = |key: &str| spec.parameters.get(key).map(String::as_str).unwrap_or_default();
    let number = branch.pull_request().unwrap_or_default().to_string();
    let directory = match spec.parameter(parameters::WORKSPACE_MOUNT_PATH) {
        None if spec.parameter(parameters::WORKSPACE_CLAIM_NAME).is_some() => DEFAULT_MOUNT_PATH,
        path => path.unwrap_or_default(),
    };
    let plain = [
        ("TERRAKOJO_OWNER", spec.owner.as_str()),
        ("TERRAKOJO_REPOSITORY", &spec.repository),
        ("TERRAKOJO_WORKFLOW_NAME", workflow.name()),
        ("TERRAKOJO_WORKFLOW_NAMESPACE", workflow.namespace().unwrap_or_default()),
        ("TERRAKOJO_WORKFLOW_TEMPLATE", &spec.template),
        ("TERRAKOJO_WORKFLOW_PATH", &spec.path),
        ("TERRAKOJO_SHA", &spec.sha),
        ("TERRAKOJO_BRANCH_RESOURCE", &spec.branch),
        ("TERRAKOJO_REF_NAME", &branch.name),
        ("TERRAKOJO_PR_NUMBER", &number),
        ("TERRAKOJO_EXECUTION_UNIT", parameter(parameters::EXECUTION_UNIT)),
        ("TERRAKOJO_IS_DEFAULT_BRANCH", parameter(parameters::IS_DEFAULT_BRANCH)),
        ("TERRAKOJO_WORKSPACE_DIR", directory),
    ];
    plain.into_iter().map(|(name, value)| (name, value.replace('$', "$$"))).collect()
}

/// Adds the Branch's shared volume, if there is one; returns the mount that every container gets.
fn workspace(from: &Ingredients<'_>, pod: &mut Value) -> Option<Value> {
    let claim = from.spec.parameter(parameters::WORKSPACE_CLAIM_NAME)?;
    let path = from.spec.parameter(parameters::WORKSPACE_MOUNT_PATH).unwrap_or(DEFAULT_MOUNT_PATH);
    let volume = json!({"name": WORKSPACE_VOLUME, "persistentVolumeClaim": {"claimName": claim}});
    replace_named(pod, "volumes", &volume);
    default(object(pod, "securityContext"), "fsGroup", json!(Hardening::USER_IMAGE.user));
    Some(json!({"name": WORKSPACE_VOLUME, "mountPath": path}))
}

fn harden_pod(pod: &mut Value, branch: &BranchSpec) {
    default(pod, "restartPolicy", json!("Never"));
    default(pod, "automountServiceAccountToken", json!(false));
    if branch.head_repository.is_some() {
        // What a fork wrote never gets the namespace's credentials, whatever the template says.
        pod["automountServiceAccountToken"] = json!(false);
        drop_token_sources(pod);
    }
    Hardening::USER_IMAGE.apply_to_pod(pod);
}

/// A projected volume is another way to a ServiceAccount's token.
fn drop_token_sources(pod: &mut Value) {
    let volumes = pod.get_mut("volumes").and_then(Value::as_array_mut);
    for volume in volumes.into_iter().flatten() {
        if let Some(sources) = volume.pointer_mut("/projected/sources").and_then(Value::as_array_mut) {
            sources.retain(|source| source.get("serviceAccountToken").is_none_or(Value::is_null));
        }
    }
}

/// Ours first, so that the template's may refer to them; same-named ones of the template are dropped, so that ours win.
fn inject(container: &mut Value, env: &[(&'static str, String)], mount: Option<&Value>) {
    let theirs = container.get("env").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_ours = |variable: &Value| env.iter().any(|(name, _)| variable.get("name") == Some(&json!(name)));
    let ours = env.iter().map(|(name, value)| json!({"name": name, "value": value}));
    let all = ours.chain(theirs.into_iter().filter(|variable| !is_ours(variable)));
    container["env"] = Value::Array(all.collect());
    if let Some(mount) = mount {
        replace_named(container, "volumeMounts", mount);
    }
}

/// What would make a Pod as good as root on its node, by the path of the field.
fn too_powerful(pod: &Value) -> Vec<String> {
    let mut found: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|field| is_true(pod, field))
        .map(str::to_owned)
        .collect();
    if host_process(pod) {
        found.push("securityContext.windowsOptions.hostProcess".to_owned());
    }
    for (at, volume) in list(pod, "volumes").enumerate() {
        if volume.get("hostPath").is_some_and(|path| !path.is_null()) {
            found.push(format!("volumes[{at}].hostPath"));
        }
    }
    for field in ["initContainers", "containers"] {
        for (at, container) in list(pod, field).enumerate() {
            if container.get("securityContext").is_some_and(|context| is_true(context, "privileged")) {
                found.push(format!("{field}[{at}].securityContext.privileged"));
            }
            if host_process(container) {
                found.push(format!("{field}[{at}].securityContext.windowsOptions.hostProcess"));
            }
        }
    }
    found
}

fn host_process(holder: &Value) -> bool {
    holder.pointer("/securityContext/windowsOptions").is_some_and(|options| is_true(options, "hostProcess"))
}

fn containers(pod: &mut Value) -> impl Iterator<Item = &mut Value> {
    let fields = pod.as_object_mut().into_iter().flat_map(|pod| pod.iter_mut());
    let lists = fields.filter(|(key, _)| *key == "initContainers" || *key == "containers");
    lists.filter_map(|(_, list)| list.as_array_mut()).flatten().filter(|container| container.is_object())
}

fn list<'a>(holder: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    holder.get(field).and_then(Value::as_array).into_iter().flatten()
}

/// Puts an item into a list in place of one of the same name.
fn replace_named(holder: &mut Value, field: &str, item: &Value) {
    let others = list(holder, field).filter(|other| other.get("name") != item.get("name")).cloned();
    let items: Vec<Value> = others.chain([item.clone()]).collect();
    holder[field] = items.into();
}

#[cfg(test)]
mod tests {
    use super::*;
    use pawl_api::git::{branch, workflow};

    fn yaml(text: &str) -> Value {
        serde_saphyr::from_str(text).unwrap()
    }

    /// Builds the Job of a template for a Workflow with these parameters.
    fn check(job: &str, parameters: &str, allow_privileged: bool) -> Result<Value, BuildError> {
        build_for(job, parameters, allow_privileged, None)
    }

    fn build_for(
        job: &str,
        parameters: &str,
        allow_privileged: bool,
        fork: Option<&str>,
    ) -> Result<Value, BuildError> {
        let metadata = json!({"name": "plan-1", "namespace": "n", "uid": "w-uid"});
        let object = Object::new(workflow::KIND, json!({"metadata": metadata})).unwrap();
        let spec = serde_json::from_value(json!({"owner": "acme", "repository": "My_Repo", "branch": "b",
            "sha": "a".repeat(40), "template": "plan", "path": "envs/$(SECRET)", "parameters": yaml(parameters)}));
        let branch = json!({"owner": "acme", "repository": "My_Repo", "name": "fix/$HOME", "sha": "a".repeat(40),
            "prNumber": 7, "headRepository": fork});
        let branch: BranchSpec = serde_json::from_value(branch).unwrap();
        assert_eq!(branch::KIND.kind, "Branch");
        let job = serde_json::from_value(yaml(job)).unwrap();
        build(Ingredients {
            workflow: &object,
            spec: &spec.unwrap(),
            branch: &branch,
            job: &job,
            allow_privileged,
            check_run: Some(7),
            repository_uid: Some("repository-r"),
        })
    }

    const PLAIN: &str = "{template: {spec: {containers: [{name: main, image: i}]}}}";

    #[test]
    fn what_is_unset_gets_secure_defaults() {
        let job = check(PLAIN, "{}", false).unwrap();
        assert_eq!(job["metadata"]["name"], "plan-1");
        assert_eq!(job["metadata"]["ownerReferences"][0]["uid"], "w-uid");
        assert_eq!(job["spec"]["backoffLimit"], 0);
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!(pod["restartPolicy"], "Never");
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(
            pod["securityContext"],
            json!({"runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}})
        );
        assert_eq!(
            pod["containers"][0]["securityContext"],
            json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
        );
        for holder in [&job["metadata"], &job["spec"]["template"]["metadata"]] {
            assert_eq!(holder["labels"]["terrakojo.io/repo-name"], "My_Repo");
            assert_eq!(holder["labels"]["terrakojo.io/sha"], "a".repeat(40));
        }
    }

    #[test]
    fn a_forks_job_gets_no_service_account_token_in_any_way() {
        let job = "{template: {spec: {automountServiceAccountToken: true, containers: [{name: main, image: i}], \
            volumes: [{name: t, projected: {sources: [{serviceAccountToken: {path: t}}, {secret: {name: s}}]}}]}}}";
        let pod = |fork| build_for(job, "{}", false, fork).unwrap()["spec"]["template"]["spec"].clone();
        let (theirs, ours) = (pod(Some("someone/infra")), pod(None));
        assert_eq!(theirs["automountServiceAccountToken"], false);
        assert_eq!(theirs["volumes"][0]["projected"]["sources"], json!([{"secret": {"name": "s"}}]));
        assert_eq!(ours["automountServiceAccountToken"], true);
        assert_eq!(ours["volumes"][0]["projected"]["sources"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn i6_every_secret_that_a_container_can_print_is_named() {
        let job = yaml(
            "{spec: {template: {spec: {imagePullSecrets: [{name: pull}],
            initContainers: [{name: i, envFrom: [{secretRef: {name: a}}, {configMapRef: {name: x}}]}],
            containers: [{name: c, env: [{name: E, valueFrom: {secretKeyRef: {name: b, key: k}}}, {name: F, value: v}]}],
            volumes: [{name: v, secret: {secretName: c}}, {name: w, projected: {sources: [{secret: {name: d}}]}}, {name: e, emptyDir: {}}]}}}}",
        );
        assert_eq!(secrets(&job), ["a", "b", "c", "d"].map(str::to_owned).into());
        assert!(secrets(&json!({})).is_empty());
    }

    #[test]
    fn what_the_template_says_stays_and_unknown_fields_too() {
        let job = "{backoffLimit: 2, someday: {a: 1}, template: {metadata: {labels: {mine: x}}, spec: {restartPolicy: OnFailure, \
            automountServiceAccountToken: true, securityContext: {runAsUser: 7, runAsNonRoot: false, seccompProfile: {type: ''}}, \
            containers: [{name: main, image: i, securityContext: {allowPrivilegeEscalation: true, capabilities: {drop: [KILL]}}}]}}}";
        let built = check(job, "{}", false).unwrap();
        let pod = &built["spec"]["template"]["spec"];
        assert_eq!((&built["spec"]["backoffLimit"], &built["spec"]["someday"]["a"]), (&json!(2), &json!(1)));
        assert_eq!(built["spec"]["template"]["metadata"]["labels"]["mine"], "x");
        assert_eq!(
            (&pod["restartPolicy"], &pod["automountServiceAccountToken"]),
            (&json!("OnFailure"), &json!(true))
        );
        assert_eq!(pod["securityContext"]["runAsUser"], 7);
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        assert_eq!(pod["containers"][0]["securityContext"]["capabilities"]["drop"], json!(["KILL"]));
        assert_eq!(pod["containers"][0]["securityContext"]["allowPrivilegeEscalation"], true);
    }

    #[test]
    fn i10_thirteen_variables_come_first_with_dollars_doubled_and_win() {
        let job = "{template: {spec: {initContainers: [{name: i, image: i}], containers: [{name: main, image: i, \
            env: [{name: TERRAKOJO_SHA, value: mine}, {name: DIR, value: $(TERRAKOJO_WORKFLOW_PATH)}]}]}}}";
        let built = check(job, "{isDefaultBranch: 'false', executionUnit: folder}", false).unwrap();
        let pod = &built["spec"]["template"]["spec"];
        let value = |container: &Value, name: &str| -> Vec<String> {
            let all = container["env"].as_array().unwrap().iter().filter(|variable| variable["name"] == name);
            all.map(|variable| variable["value"].as_str().unwrap().to_owned()).collect()
        };
        let main = &pod["containers"][0];
        assert_eq!(main["env"].as_array().unwrap().len(), 14);
        assert_eq!(main["env"][13]["name"], "DIR");
        assert_eq!(value(main, "TERRAKOJO_SHA"), ["a".repeat(40)]);
        assert_eq!(value(main, "TERRAKOJO_WORKFLOW_PATH"), ["envs/$$(SECRET)"]);
        assert_eq!(value(main, "TERRAKOJO_REF_NAME"), ["fix/$$HOME"]);
        assert_eq!(value(main, "TERRAKOJO_PR_NUMBER"), ["7"]);
        assert_eq!(value(main, "TERRAKOJO_WORKSPACE_DIR"), [""]);
        assert_eq!(pod["initContainers"][0]["env"].as_array().unwrap().len(), 13);
    }

    #[test]
    fn a_workspace_is_mounted_everywhere_and_its_default_path_is_told_too() {
        for (parameters, path) in [
            ("{workspaceClaimName: ws-1}", "/workspace"),
            ("{workspaceClaimName: ws-1, workspaceMountPath: /src}", "/src"),
        ] {
            let built = check(PLAIN, parameters, false).unwrap();
            let pod = &built["spec"]["template"]["spec"];
            assert_eq!(pod["volumes"][0]["persistentVolumeClaim"]["claimName"], "ws-1");
            assert_eq!(
                pod["containers"][0]["volumeMounts"],
                json!([{"name": WORKSPACE_VOLUME, "mountPath": path}])
            );
            assert_eq!(
                pod["containers"][0]["env"][12],
                json!({"name": "TERRAKOJO_WORKSPACE_DIR", "value": path})
            );
            assert_eq!(pod["securityContext"]["fsGroup"], 1000);
        }
    }

    #[test]
    fn root_on_the_node_is_refused_by_field_unless_the_namespace_allows_it() {
        let job = "{template: {spec: {hostNetwork: true, volumes: [{name: h, hostPath: {path: /}}], \
            containers: [{name: main, image: i, securityContext: {privileged: true}}]}}}";
        let refused = check(job, "{}", false).unwrap_err().to_string();
        assert!(
            refused.starts_with(
                "hostNetwork, volumes[0].hostPath, containers[0].securityContext.privileged are not"
            ),
            "{refused}"
        );
        let built = check(job, "{}", true).unwrap();
        let context = &built["spec"]["template"]["spec"]["containers"][0]["securityContext"];
        assert!(
            context.get("allowPrivilegeEscalation").is_none(),
            "the API server would refuse the two together"
        );
    }

    #[test]
    fn what_is_not_a_job_is_said_so() {
        for job in [
            "{}",
            "{template: {spec: {containers: []}}}",
            "{template: {spec: {containers: 7}}}",
            "{backoffLimit: x, template: {}}",
        ] {
            assert!(matches!(check(job, "{}", false), Err(BuildError::NotAJob(_))), "{job}");
        }
    }
}
