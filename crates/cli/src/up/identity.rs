//! Who this control plane is: a certificate authority and a server certificate of its own, the token of its owner, and
//! the key that signs the tokens of ServiceAccounts.
//!
//! Made once, kept in the data directory with mode 0600, so that a kubeconfig stays good over restarts.

use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Bits of the token: as many as an AES-256 key, in hexadecimal.
const TOKEN_BYTES: usize = 32;

pub(crate) struct Identity {
    ca_pem: String,
    certificate_pem: String,
    key_pem: String,
    token: String,
    signing_key_pem: String,
}

impl Identity {
    /// What is in the directory, or a new one.
    pub(crate) fn load_or_make(directory: &Path, ip: IpAddr) -> anyhow::Result<Self> {
        let file = |name: &str| directory.join("identity").join(name);
        std::fs::create_dir_all(directory.join("identity")).context("make the identity directory")?;
        let ca_key = read_or(&file("ca.key"), || Ok(KeyPair::generate()?.serialize_pem()))?;
        let ca_pair =
            KeyPair::from_pem(&ca_key).with_context(|| format!("read {}", file("ca.key").display()))?;
        let ca_pem = read_or(&file("ca.crt"), || Ok(authority()?.self_signed(&ca_pair)?.pem()))?;
        let token = read_or(&file("token"), new_token)?;
        // rcgen's keys are ECDSA on P-256 unless told otherwise: what the API server signs with.
        let signing_key_pem =
            read_or(&file("serviceaccounts.key"), || Ok(KeyPair::generate()?.serialize_pem()))?;
        // The server's own certificate is made at every start: it costs a millisecond and always names the address.
        let pair = KeyPair::generate()?;
        let certificate = server(ip)?.signed_by(&pair, &Issuer::new(authority()?, ca_pair))?;
        let (certificate_pem, key_pem) = (certificate.pem(), pair.serialize_pem());
        Ok(Self { ca_pem, certificate_pem, key_pem, token, signing_key_pem })
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Who may come in over the API server's socket.
    pub(crate) fn access(&self) -> anyhow::Result<pawl_apiserver::Access> {
        let signing_key = pawl_apiserver::SigningKey::from_pem(&self.signing_key_pem)?;
        Ok(pawl_apiserver::Access { admin_token: self.token.clone(), signing_key })
    }

    pub(crate) fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    pub(crate) fn tls(&self) -> anyhow::Result<Arc<ServerConfig>> {
        let chain = vec![CertificateDer::from_pem_slice(self.certificate_pem.as_bytes())?];
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes())?;
        Ok(Arc::new(ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?))
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Neither key nor token belongs into a log (I6).
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

fn authority() -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "pawl");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn server(ip: IpAddr) -> anyhow::Result<CertificateParams> {
    let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    let mut params = CertificateParams::new(names.map(str::to_owned))?;
    params.distinguished_name.push(DnType::CommonName, "pawl API server");
    params.subject_alt_names.push(SanType::IpAddress(IpAddr::from([127, 0, 0, 1])));
    params.subject_alt_names.push(SanType::IpAddress(ip));
    Ok(params)
}

/// A secret that nobody can guess.
pub(super) fn new_token() -> anyhow::Result<String> {
    let mut bytes = [0_u8; TOKEN_BYTES];
    let provider = rustls::crypto::ring::default_provider();
    provider
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| anyhow::anyhow!("the machine has no randomness to give"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A file's text, or a new one, written so that only its owner can read it.
fn read_or(path: &Path, make: impl FnOnce() -> anyhow::Result<String>) -> anyhow::Result<String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let text = make()?;
            write_private(path, &text)?;
            Ok(text)
        }
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}

/// Replaces a file whole, readable by its owner alone from the first byte on.
pub(super) fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("file");
    let draft = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = (|| {
        let mut file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&draft, path)
    })();
    written.with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn an_identity_stays_over_restarts_and_is_its_owners_alone() {
        let directory = tempfile::tempdir().unwrap();
        let ip = IpAddr::from([127, 0, 0, 1]);
        let first = Identity::load_or_make(directory.path(), ip).unwrap();
        let second = Identity::load_or_make(directory.path(), ip).unwrap();
        assert_eq!((first.token(), first.ca_pem().trim()), (second.token(), second.ca_pem().trim()));
        assert_eq!(first.token().len(), 2 * TOKEN_BYTES);
        first.access().unwrap();
        for name in ["ca.key", "serviceaccounts.key", "token"] {
            let mode =
                std::fs::metadata(directory.path().join("identity").join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        assert!(!format!("{first:?}").contains(first.token()));
    }
}
