//! How does one object of a bundle get here from its registry?
//!
//! ```text
//! tag ──asked each time──▶ bytes, and so a digest ─┐
//! digest ──────────────────────────────────────────┴▶ manifest (or index ▶ manifest) ──▶ the one layer ──▶ object
//! ```
//! Every step but a tag's is by digest: taken from what was fetched before, else fetched and checked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pawl_integrations::registry::{self, Credentials, NoCredentials, Repository};
use pawl_integrations::transport::Transport;
use pawl_runner::oci::{
    self, Astray, Digest, Fetched, Leads, MAX_INDEX_DEPTH, MAX_JSON_BYTES, Mismatch, Platform, Reference,
    bundle,
};

use super::blocking;

/// The longest `config.json` that is read: logins for hundreds of registries.
const MAX_LOGINS_BYTES: u64 = 1 << 20;

/// Where bundles come from that are not on this machine.
#[derive(Clone, Debug)]
pub(super) struct Registries {
    pub(super) transport: Transport,
    /// Docker's `config.json`, read each time: a login may be renewed.
    pub(super) logins: Option<PathBuf>,
    pub(super) fetched: Fetched,
}

/// Why a bundle could not be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("cannot retrieve the oci image: {0}")]
    Registry(#[from] registry::Error),
    #[error(
        "cannot retrieve the oci image: {digest} is too large: {size} bytes, and at most {at_most} are taken"
    )]
    TooLarge { digest: Digest, size: u64, at_most: u64 },
    #[error("cannot retrieve the oci image: {0}")]
    Mismatch(#[from] Mismatch),
    #[error("not a bundle: {digest}: {source}")]
    Astray { digest: Digest, source: Astray },
    #[error("not a bundle: lists of images within lists of images")]
    TooDeep,
    #[error("{0}")]
    Bundle(#[from] bundle::Error),
    #[error("cannot read the logins for registries: {path}: {source}")]
    Logins { path: PathBuf, source: std::io::Error },
    #[error("cannot read the logins for registries: {path}: {source}")]
    NoLogins { path: PathBuf, source: NoCredentials },
    #[error("cannot unpack the bundle: {0}")]
    Stopped(String),
}

/// What is asked for by digest.
#[derive(Clone, Copy, Debug)]
enum Part {
    Manifest,
    Layer,
}

impl Error {
    /// Whether asking again later may help, and how much later the registry said.
    pub(super) fn passes(&self) -> Option<Option<Duration>> {
        match self {
            Self::Registry(error) => error.passes(),
            Self::TooLarge { .. }
            | Self::Mismatch(_)
            | Self::Astray { .. }
            | Self::TooDeep
            | Self::Bundle(_)
            | Self::Logins { .. }
            | Self::NoLogins { .. }
            | Self::Stopped(_) => None,
        }
    }
}

impl Registries {
    /// The bytes of one object of a bundle.
    pub(super) async fn pull(&self, wanted: &Reference, kind: &str, name: &str) -> Result<Vec<u8>, Error> {
        let credentials = self.credentials().await?;
        let mut repository = Repository::new(self.transport.clone(), &wanted.repository, &credentials)?;
        let (mut digest, mut bytes) = match (&wanted.digest, &wanted.tag) {
            (Some(digest), _) => {
                let bytes = self.by_digest(&mut repository, Part::Manifest, digest, MAX_JSON_BYTES).await?;
                (digest.clone(), bytes)
            }
            (None, tag) => {
                let tag = tag.as_deref().unwrap_or("latest");
                let bytes = Vec::from(repository.manifest(tag, limit(MAX_JSON_BYTES)).await?);
                let digest = Digest::of(&bytes);
                (digest.clone(), self.keep(digest, bytes).await?)
            }
        };
        for _ in 0..MAX_INDEX_DEPTH {
            let found = oci::follow("", &bytes, &Platform::here());
            match found.map_err(|source| Error::Astray { digest: digest.clone(), source })? {
                Leads::To(descriptor) => {
                    let (size, at_most) = (descriptor.size, MAX_JSON_BYTES);
                    if size > at_most {
                        return Err(Error::TooLarge { digest: descriptor.digest, size, at_most });
                    }
                    bytes = self.by_digest(&mut repository, Part::Manifest, &descriptor.digest, size).await?;
                    digest = descriptor.digest;
                }
                Leads::Here(manifest) => {
                    let layer = bundle::layer(&manifest, kind, name)?.clone();
                    let (size, at_most) = (layer.size, bundle::MAX_LAYER_BYTES);
                    if size > at_most {
                        return Err(Error::TooLarge { digest: layer.digest, size, at_most });
                    }
                    let blob = self.by_digest(&mut repository, Part::Layer, &layer.digest, size).await?;
                    return Ok(aside(move || bundle::object(blob.as_slice(), &layer)).await??);
                }
            }
        }
        Err(Error::TooDeep)
    }

    /// What has this digest: from what was fetched before, else from the registry.
    async fn by_digest(
        &self,
        repository: &mut Repository,
        part: Part,
        digest: &Digest,
        at_most: u64,
    ) -> Result<Vec<u8>, Error> {
        let (fetched, wanted) = (self.fetched.clone(), digest.clone());
        if let Some(bytes) = aside(move || fetched.get(&wanted, at_most)).await? {
            return Ok(bytes);
        }
        let (reference, at_most) = (digest.to_string(), limit(at_most));
        let bytes = match part {
            Part::Manifest => repository.manifest(&reference, at_most).await?,
            Part::Layer => repository.blob(&reference, at_most).await?,
        };
        self.keep(digest.clone(), bytes.into()).await
    }

    async fn keep(&self, digest: Digest, bytes: Vec<u8>) -> Result<Vec<u8>, Error> {
        let fetched = self.fetched.clone();
        aside(move || fetched.put(&digest, &bytes).map(|()| bytes)).await?.map_err(Error::Mismatch)
    }

    async fn credentials(&self) -> Result<Credentials, Error> {
        let Some(path) = self.logins.clone() else { return Ok(Credentials::default()) };
        aside(move || credentials(&path)).await?
    }
}

fn credentials(path: &Path) -> Result<Credentials, Error> {
    use std::io::Read;
    let failed = |source| Error::Logins { path: path.to_owned(), source };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        // Nobody has logged in yet.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Credentials::default()),
        Err(error) => return Err(failed(error)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_LOGINS_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    Credentials::parse(&bytes).map_err(|source| Error::NoLogins { path: path.to_owned(), source })
}

/// Off the loop's own threads.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    blocking(work).await.map_err(|error| Error::Stopped(error.to_string()))
}

fn limit(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pawl_integrations::registry::fake::{self, Fake, Guard};
    use serde_json::{Value, json};

    const NAME: &str = "flows/mend";

    struct World {
        fake: Fake,
        registries: Registries,
        _home: tempfile::TempDir,
    }

    impl World {
        fn new() -> Self {
            let (fake, home) = (Fake::default(), tempfile::tempdir().unwrap());
            let fetched = Fetched::new(home.path().join("fetched"));
            let logins = Some(home.path().join("config.json"));
            let registries = Registries { transport: fake.transport(), logins, fetched };
            Self { fake, registries, _home: home }
        }

        /// Puts a manifest with these layers under the tag `1` and under its digest, which it gives.
        fn put(&self, layers: &[Value]) -> Digest {
            let config = json!({"digest": Digest::of(b"{}"), "size": 2});
            self.put_manifest(&json!({"schemaVersion": 2, "config": config, "layers": layers}))
        }

        fn put_manifest(&self, manifest: &Value) -> Digest {
            let bytes = manifest.to_string();
            let digest = Digest::of(bytes.as_bytes());
            self.fake.put_manifest(NAME, "1", bytes.clone());
            self.fake.put_manifest(NAME, &digest.to_string(), bytes);
            digest
        }

        fn layer(&self, path: &str, text: &str) -> Value {
            let bytes = fake::layer(path, text);
            let digest = Digest::of(&bytes);
            let layer = json!({"digest": digest, "size": bytes.len(), "annotations":
                {"dev.tekton.image.kind": "pipeline", "dev.tekton.image.name": "w"}});
            self.fake.put_blob(NAME, &digest.to_string(), bytes);
            layer
        }

        async fn pull(&self, which: &str) -> Result<String, String> {
            let wanted = format!("r.example.com/{NAME}{which}").parse().unwrap();
            let pulled = self.registries.pull(&wanted, "pipeline", "w").await;
            pulled.map(|bytes| String::from_utf8(bytes).unwrap()).map_err(|error| error.to_string())
        }
    }

    #[tokio::test]
    async fn a_tag_is_asked_for_each_time_and_what_has_a_digest_once() {
        let world = World::new();
        let digest = world.put(&[world.layer("p", "one")]);
        assert_eq!(world.pull(":1").await.unwrap(), "one");
        assert_eq!(world.fake.asked().len(), 2, "the manifest and its layer");
        assert_eq!(world.pull(":1").await.unwrap(), "one");
        assert_eq!(world.fake.asked().len(), 1, "what the tag means now");
        assert_eq!(world.pull(&format!("@{digest}")).await.unwrap(), "one");
        assert!(world.fake.asked().is_empty(), "a restart needs no registry");
        world.put(&[world.layer("p", "two")]);
        assert_eq!(world.pull(":1").await.unwrap(), "two", "the tag has moved");
        assert_eq!(world.pull(&format!(":1@{digest}")).await.unwrap(), "one", "what is pinned has not");
    }

    #[tokio::test]
    async fn of_a_list_of_images_the_one_for_this_machine_is_taken() {
        let world = World::new();
        let digest = world.put(&[world.layer("p", "one")]);
        let here = Platform::here();
        let entry = |platform: &Platform| json!({"digest": digest, "size": 1 << 20, "platform": platform});
        let other = Platform { os: "plan9".to_owned(), ..here.clone() };
        world.put_manifest(&json!({"manifests": [entry(&other), entry(&here)]}));
        assert_eq!(world.pull(":1").await.unwrap(), "one");
        world.put_manifest(&json!({"manifests": [entry(&other)]}));
        let error = world.pull(":1").await.unwrap_err();
        assert!(error.contains("nothing for platform"), "{error}");
    }

    #[tokio::test]
    async fn bytes_that_are_not_those_of_their_digest_are_refused() {
        let world = World::new();
        let layer = world.layer("p", "one");
        let digest = world.put(std::slice::from_ref(&layer));
        world.fake.put_blob(NAME, layer["digest"].as_str().unwrap(), fake::layer("p", "evil"));
        let error = world.pull(":1").await.unwrap_err();
        assert!(error.starts_with("cannot retrieve the oci image: digest mismatch: sha256:"), "{error}");
        let other = Digest::of(b"another");
        world.fake.put_manifest(NAME, &other.to_string(), "{}");
        assert!(world.pull(&format!("@{other}")).await.unwrap_err().contains("digest mismatch"));
        world.layer("p", "one");
        assert_eq!(world.pull(&format!("@{digest}")).await.unwrap(), "one", "nothing bad was kept");
    }

    #[tokio::test]
    async fn what_is_too_large_is_not_fetched_and_what_grows_under_way_is_cut_off() {
        let world = World::new();
        let mut layer = world.layer("p", "one");
        layer["size"] = json!(1_u64 << 40);
        world.put(std::slice::from_ref(&layer));
        let error = world.pull(":1").await.unwrap_err();
        assert!(error.contains("is too large: 1099511627776 bytes"), "{error}");
        assert_eq!(world.fake.asked().len(), 1, "its manifest says enough");
        layer["size"] = json!(100);
        world.put(&[layer]);
        let error = world.pull(":1").await.unwrap_err();
        assert!(error.contains("too large: more than 100 bytes"), "{error}");
    }

    #[tokio::test]
    async fn what_is_no_bundle_or_not_there_or_not_for_us_is_said() {
        let world = World::new();
        assert!(world.pull(":1").await.unwrap_err().contains("not found: MANIFEST_UNKNOWN"));
        for (manifest, why) in [
            ("not JSON", "not a bundle"),
            ("{}", "neither the manifest of an image nor a list of some"),
            (r#"{"config": {"digest": "../../x", "size": 1}}"#, "neither the manifest of an image"),
        ] {
            world.fake.put_manifest(NAME, "1", manifest);
            let error = world.pull(":1").await.unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let mut plain = world.layer("p", "one");
        plain["annotations"] = json!({});
        world.put(&[plain]);
        assert!(world.pull(":1").await.unwrap_err().contains("dev.tekton.image.kind"));
        for path in ["../../etc/cron.d/x", "/etc/passwd"] {
            world.put(&[world.layer(path, "x")]);
            assert!(world.pull(":1").await.unwrap_err().contains("leads out of the layer"));
        }
        world.fake.guard(Guard::Basic("fake:not-a-password".to_owned()));
        assert!(world.pull(":1").await.unwrap_err().contains("unauthorized"));
        let logins = world.registries.logins.clone().unwrap();
        std::fs::write(&logins, "not JSON").unwrap();
        assert!(world.pull(":1").await.unwrap_err().contains("not the config.json of Docker"));
        let config = json!({"auths": {"r.example.com": {"username": "fake", "password": "not-a-password"}}});
        std::fs::write(&logins, config.to_string()).unwrap();
        world.put(&[world.layer("p", "one")]);
        assert_eq!(world.pull(":1").await.unwrap(), "one");
    }
}
