//! Which cluster is meant.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind, NamespaceResourceScope};
use kube::{Api, Resource};
use pawl_api::meta::Kind;
use serde::de::DeserializeOwned;

/// Where `pawl up` writes its kubeconfig unless told otherwise.
const OF_UP: &str = ".pawl/kubeconfig";

/// A client for controllers: the file given, else `KUBECONFIG` and its default, else the pod's own.
///
/// # Errors
/// When there is no usable configuration.
pub async fn for_controllers(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Client> {
    Ok(kube::Client::try_from(config_for_controllers(kubeconfig).await?)?)
}

/// The same, for whoever must make more than one client of it.
///
/// # Errors
/// When there is no usable configuration.
pub(crate) async fn config_for_controllers(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Config> {
    match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path)
                .with_context(|| format!("--kubeconfig {}: cannot be read", path.display()))?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("--kubeconfig {}: cannot be used", path.display()))
        }
        None => kube::Config::infer().await.context("no cluster: give --kubeconfig, or run inside one"),
    }
}

/// A client for a person at a terminal: as above, but a `pawl up` in this folder comes before the usual places.
///
/// # Errors
/// When there is no usable configuration.
pub(crate) async fn for_people(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Client> {
    let here = Some(PathBuf::from(OF_UP))
        .filter(|path| kubeconfig.is_none() && std::env::var_os("KUBECONFIG").is_none() && path.is_file());
    for_controllers(kubeconfig.or(here.as_deref())).await
}

/// In which namespace, of which cluster, is what a person names.
#[derive(Debug, clap::Args)]
pub(crate) struct Scope {
    /// The namespace.
    #[arg(long, short, default_value = "default")]
    pub(crate) namespace: String,
    /// The cluster's kubeconfig; without it KUBECONFIG, then that of a `pawl up` in this folder, then the usual places.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

impl Scope {
    /// # Errors
    /// When there is no usable configuration.
    pub(crate) async fn client(&self) -> anyhow::Result<kube::Client> {
        for_people(self.kubeconfig.as_deref()).await
    }
}

/// A kind whose objects are in namespaces.
pub(crate) trait Namespaced:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned
{
}

impl<K> Namespaced for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
{
}

/// A kind as kube names it, for objects without a type.
pub(crate) fn resource(kind: &Kind) -> ApiResource {
    let names = GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
    ApiResource::from_gvk_with_plural(&names, &kind.plural)
}

/// Reads an object by its name.
///
/// # Errors
/// When it is not there, or the cluster does not answer.
pub(crate) async fn get<K: Namespaced>(api: &Api<K>, name: &str) -> anyhow::Result<K> {
    api.get(name).await.with_context(|| format!("read {} {name}", K::kind(&())))
}
