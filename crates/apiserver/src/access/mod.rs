//! Who asks, and may they?
//!
//! Requests from within the process are the server's own and are not asked. Those that come over a socket show a bearer
//! token; without one they are anonymous, who may see that the server is alive and nothing else.

use http::header::AUTHORIZATION;
use http::request::Parts;

use crate::status::Status;

/// What anonymous may read, as Kubernetes' `system:public-info-viewer` says.
const PUBLIC: [&str; 6] = ["/healthz", "/livez", "/readyz", "/version", "/version/", "/livez/ping"];

/// Who may come in over a socket.
#[derive(Clone)]
pub struct Access {
    /// The token of the owner, who may do everything.
    pub admin_token: String,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A token does not belong into a log.
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

impl Access {
    /// Lets a request in, or says why not.
    ///
    /// # Errors
    /// 401 for a token that is not known, 403 for anonymous where anonymous may not go.
    pub(crate) fn check(&self, request: &Parts) -> Result<(), Status> {
        let shown = request.headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        match shown.map(|shown| shown.strip_prefix(b"Bearer ").unwrap_or_default()) {
            Some(token) if same(token, self.admin_token.as_bytes()) => Ok(()),
            Some(_) => Err(Status::unauthorized()),
            None if PUBLIC.contains(&request.uri.path()) => Ok(()),
            None => Err(Status::anonymous_forbidden(request.uri.path())),
        }
    }
}

/// Compares in a time that depends on the lengths alone.
fn same(shown: &[u8], known: &[u8]) -> bool {
    let difference = shown.iter().zip(known).fold(0, |seen, (a, b)| seen | (a ^ b));
    shown.len() == known.len() && difference == 0 && !known.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn check(path: &str, authorization: Option<&str>) -> Option<u16> {
        let mut request = Request::get(path);
        if let Some(value) = authorization {
            request = request.header(AUTHORIZATION, value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let access = Access { admin_token: "not-a-real-token".into() };
        access.check(&parts).err().map(|status| status.code)
    }

    #[test]
    fn only_the_owners_token_opens() {
        assert_eq!(check("/api/v1/secrets", Some("Bearer not-a-real-token")), None);
        for wrong in ["Bearer ", "Bearer not-a-real-tokem", "Bearer not-a-real-token ", "Basic bm90", ""] {
            assert_eq!(check("/api/v1/secrets", Some(wrong)), Some(401), "{wrong:?}");
        }
    }

    #[test]
    fn anonymous_sees_that_the_server_is_alive_and_nothing_else() {
        assert_eq!(check("/healthz", None), None);
        assert_eq!(check("/version", None), None);
        assert_eq!(check("/api/v1/namespaces", None), Some(403));
    }

    #[test]
    fn a_server_without_a_token_lets_nobody_in() {
        assert!(!same(b"", b""));
    }
}
