//! The file with which `kubectl` finds this control plane.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::json;

use super::identity::{Identity, write_private};

/// Writes it, for its owner alone: it holds the token.
pub(super) fn write(path: &Path, address: SocketAddr, identity: &Identity) -> anyhow::Result<()> {
    // Listening everywhere is reached here.
    let host = if address.ip().is_unspecified() { "127.0.0.1".to_owned() } else { address.ip().to_string() };
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let cluster = json!({"server": format!("https://{host}:{}", address.port()),
        "certificate-authority-data": base64(identity.ca_pem())});
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "pawl", "preferences": {},
        "clusters": [{"name": "pawl", "cluster": cluster}],
        "users": [{"name": "pawl-admin", "user": {"token": identity.token()}}],
        "contexts": [{"name": "pawl", "context": {"cluster": "pawl", "user": "pawl-admin", "namespace": "default"}}],
    });
    write_private(path, &crate::crds::yaml(&config)?)
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}
