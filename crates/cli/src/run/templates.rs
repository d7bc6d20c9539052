//! Which templates are there, and what do their Jobs need besides?
//!
//! Manifests as they would be applied to a cluster: WorkflowTemplates, and the ConfigMaps and Secrets that their Jobs
//! refer to. What `kubectl get -o yaml` adds does no harm.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use base64::Engine as _;
use pawl_api::git::WorkflowTemplateSpec;
use pawl_api::git::workflow_template::{self, DEFAULT_MOUNT_PATH};
use pawl_api::k8s::{CONFIG_MAP, SECRET};
use pawl_api::meta::Kind;
use serde_json::{Map, Value, json};

/// Where templates are looked for in a checkout unless files are named.
const DIRECTORIES: [&str; 2] = [".terrakojo", ".pawl"];
/// Where everything is.
pub(super) const NAMESPACE: &str = "default";

const KINDS: [Kind; 3] = [workflow_template::KIND, CONFIG_MAP, SECRET];

/// Where the checkout is seen by a container whose template uses the usual place itself.
const OTHER_MOUNT_PATH: &str = "/checkout";

/// All that was found.
#[derive(Clone, Debug, Default)]
pub(super) struct Manifests {
    pub(super) templates: BTreeMap<String, WorkflowTemplateSpec>,
    /// All objects, to be created as they are.
    pub(super) objects: Vec<(Kind, Value)>,
    /// What the Secrets hold, never to be shown (I6).
    pub(super) secrets: Vec<String>,
}

/// Reads these files or, if none are named, those of the checkout.
///
/// # Errors
/// When there are none, or one cannot be read or holds something else.
pub(super) fn load(files: &[PathBuf], checkout: &Path) -> anyhow::Result<Manifests> {
    let found;
    let files = if files.is_empty() {
        found = find(checkout)?;
        found.as_slice()
    } else {
        files
    };
    let mut manifests = Manifests::default();
    for file in files {
        let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
            .map_err(|error| anyhow::anyhow!("{} is not YAML: {error}", file.display()))?;
        for (at, document) in documents.into_iter().enumerate().filter(|(_, document)| !document.is_null()) {
            let place = || format!("{}, document {}", file.display(), at + 1);
            manifests.take(document).with_context(place)?;
        }
    }
    if manifests.templates.is_empty() {
        let looked: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        match looked.as_slice() {
            [] => bail!(
                "no templates: put WorkflowTemplates into {}/*.yaml in the checkout, or name files with --template",
                DIRECTORIES.join("/*.yaml or ")
            ),
            looked => bail!("no WorkflowTemplate in {}", looked.join(", ")),
        }
    }
    Ok(manifests)
}

/// Whether a file's name says that it holds manifests.
pub(super) fn is_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// Where containers of a template see the checkout: where its shared workspace would be, unless it has something of
/// its own there.
pub(super) fn mount_path(spec: &WorkflowTemplateSpec) -> String {
    let wanted = spec.workspace.as_ref().filter(|workspace| workspace.enabled);
    let wanted = wanted.map_or(DEFAULT_MOUNT_PATH, |workspace| workspace.mount_path.as_str());
    let pod = Value::Object(spec.job.0.clone());
    let taken = containers(&pod).any(|container| {
        let mounts = container.get("volumeMounts").and_then(Value::as_array).into_iter().flatten();
        mounts.into_iter().any(|mount| mount.get("mountPath").and_then(Value::as_str) == Some(wanted))
    });
    if taken { OTHER_MOUNT_PATH } else { wanted }.to_owned()
}

/// The template with every container that names no working directory started in this one.
pub(super) fn working_in(template: &Value, directory: &str) -> Value {
    let mut template = template.clone();
    for field in ["initContainers", "containers"] {
        let list = template.pointer_mut(&format!("/spec/job/template/spec/{field}"));
        for container in
            list.and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
        {
            let unset = container.get("workingDir").is_none_or(|dir| dir.is_null() || *dir == "");
            if unset {
                container.insert("workingDir".to_owned(), json!(directory));
            }
        }
    }
    template
}

impl Manifests {
    fn take(&mut self, mut document: Value) -> anyhow::Result<()> {
        let word = |field: &str| document.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (api_version, kind) = (word("apiVersion"), word("kind"));
        if kind == "List" && api_version == "v1" {
            let items = document.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take);
            return items.unwrap_or_default().into_iter().try_for_each(|item| self.take(item));
        }
        let known = KINDS.into_iter().find(|known| known.kind == kind && known.api_version() == api_version);
        let Some(known) = known else {
            let names: Vec<String> =
                KINDS.iter().map(|known| format!("{} {}", known.api_version(), known.kind)).collect();
            bail!("{api_version:?} {kind:?} is not used here; {} are", names.join(", "));
        };
        let name = document.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        if name.is_empty() {
            bail!("{kind} without metadata.name");
        }
        let twice = |(other, object): &(Kind, Value)| {
            other.same_kind(&known) && object.pointer("/metadata/name") == Some(&json!(name))
        };
        if self.objects.iter().any(twice) {
            bail!("{kind} {name} is there twice");
        }
        if known == workflow_template::KIND {
            let spec = document.get("spec").cloned().unwrap_or_default();
            let spec =
                serde_json::from_value(spec).with_context(|| format!("WorkflowTemplate {name}: spec"))?;
            self.templates.insert(name.clone(), spec);
        }
        if known == SECRET {
            self.secrets.extend(secret_values(&document));
        }
        let object = bare(&document, &name);
        self.objects.push((known, object));
        Ok(())
    }
}

fn find(checkout: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for directory in DIRECTORIES {
        let directory = checkout.join(directory);
        if !directory.is_dir() {
            continue;
        }
        let entries =
            std::fs::read_dir(&directory).with_context(|| format!("read {}", directory.display()))?;
        for entry in entries {
            let path = entry.with_context(|| format!("read {}", directory.display()))?.path();
            if path.is_file() && is_manifest(&path) {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Without what a server adds, and in the one namespace there is.
fn bare(document: &Value, name: &str) -> Value {
    let mut object: Map<String, Value> = document.as_object().cloned().unwrap_or_default();
    object.remove("status");
    let kept = |field: &str| document.pointer(&format!("/metadata/{field}")).cloned().unwrap_or_default();
    let metadata = json!({"name": name, "namespace": NAMESPACE, "labels": kept("labels"),
        "annotations": kept("annotations")});
    object.insert("metadata".to_owned(), metadata);
    Value::Object(object)
}

fn secret_values(secret: &Value) -> Vec<String> {
    let field = |name: &str| secret.get(name).and_then(Value::as_object).into_iter().flat_map(Map::values);
    let plain = field("stringData").filter_map(Value::as_str).map(str::to_owned);
    let encoded = field("data").filter_map(Value::as_str).filter_map(|text| {
        let bytes = base64::engine::general_purpose::STANDARD.decode(text.trim()).ok()?;
        String::from_utf8(bytes).ok()
    });
    // A line's end belongs to how a secret was stored, not to what a program prints of it.
    let trimmed = plain.chain(encoded).map(|text| text.trim().to_owned());
    trimmed.filter(|text| !text.is_empty()).collect()
}

/// The containers of a JobSpec.
fn containers(job: &Value) -> impl Iterator<Item = &Value> {
    let of = |field: &str| job.pointer(&format!("/template/spec/{field}")).and_then(Value::as_array);
    [of("initContainers"), of("containers")].into_iter().flatten().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "apiVersion: terrakojo.io/v1alpha1\nkind: WorkflowTemplate\nmetadata: {name: plan}\n\
        spec: {displayName: Plan, match: {paths: ['**']}, job: {template: {spec: {containers: [{name: main}]}}}}\n";

    fn check(text: &str) -> Result<Manifests, String> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join(".terrakojo")).unwrap();
        std::fs::write(directory.path().join(".terrakojo/all.yaml"), text).unwrap();
        load(&[], directory.path()).map_err(|error| {
            let told = format!("{error:#}");
            told.replace(&directory.path().display().to_string(), "")
        })
    }

    #[test]
    fn templates_and_what_their_jobs_refer_to_are_read_and_the_rest_is_refused() {
        let secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: x, resourceVersion: '7'}\n\
            stringData: {a: not-a-real-secret}\ndata: {b: YWxzby1ub3QtcmVhbAo=}\n";
        let found = check(&format!("{PLAN}{secret}")).unwrap();
        assert_eq!(found.templates.keys().collect::<Vec<_>>(), ["plan"]);
        assert_eq!(found.secrets, ["not-a-real-secret", "also-not-real"]);
        assert_eq!(found.objects[1].1["metadata"]["namespace"], "default");
        assert_eq!(found.objects[1].1["metadata"].get("resourceVersion"), None);
        for (text, expect) in [
            ("a: [", "/.terrakojo/all.yaml is not YAML"),
            (
                "kind: Pod\napiVersion: v1",
                "/.terrakojo/all.yaml, document 1: \"v1\" \"Pod\" is not used here",
            ),
            ("# nothing\n", "no WorkflowTemplate in /.terrakojo/all.yaml"),
            (&format!("{PLAN}---\n{PLAN}"), "document 2: WorkflowTemplate plan is there twice"),
            (
                &PLAN.replace("displayName: Plan, ", ""),
                "WorkflowTemplate plan: spec: missing field `displayName`",
            ),
        ] {
            let told = check(text).unwrap_err();
            assert!(told.contains(expect), "{told}");
        }
        let nothing = load(&[], tempfile::tempdir().unwrap().path()).unwrap_err().to_string();
        assert!(
            nothing.starts_with("no templates: put WorkflowTemplates into .terrakojo/*.yaml"),
            "{nothing}"
        );
    }

    #[test]
    fn a_container_works_in_the_checkout_unless_it_says_where() {
        let template = json!({"spec": {"job": {"template": {"spec": {"initContainers": [{"name": "i"}],
            "containers": [{"name": "a", "workingDir": "/srv"}, {"name": "b", "workingDir": ""}]}}}}});
        let placed = working_in(&template, "/workspace");
        let pod = &placed["spec"]["job"]["template"]["spec"];
        assert_eq!(pod["initContainers"][0]["workingDir"], "/workspace");
        assert_eq!(pod["containers"][0]["workingDir"], "/srv");
        assert_eq!(pod["containers"][1]["workingDir"], "/workspace");
    }

    #[test]
    fn the_checkout_is_where_the_workspace_would_be_unless_that_is_taken() {
        let mut spec = check(PLAN).unwrap().templates.remove("plan").unwrap();
        assert_eq!(mount_path(&spec), "/workspace");
        spec.workspace = serde_json::from_value(json!({"mountPath": "/src"})).unwrap();
        assert_eq!(mount_path(&spec), "/src");
        let mounts = json!([{"name": "own", "mountPath": "/src"}]);
        spec.job.0["template"]["spec"]["containers"][0]["volumeMounts"] = mounts;
        assert_eq!(mount_path(&spec), "/checkout");
    }
}
