//! How is what is needed to take an action back stored before it is done (I4)?
//!
//! ```text
//! the Secret is there and ours ─▶ what it says          not there ─▶ look, (foresee), create it ─▶ AlreadyExists? read it
//! ```

use jiff::Timestamp;
use pawl_api::k8s::SECRET;
use pawl_machines::failure::{Category, Failure};
use pawl_machines::object::Key;
use pawl_machines::remedy::action::course::Course;
use pawl_machines::remedy::action::kept::{self, Kept};
use pawl_machines::remedy::action::seen::Seen;
use pawl_machines::remedy::action::{Captured, REFUSED, definition};
use sha2::{Digest, Sha256};

use crate::reading::{self, Known};
use crate::try_out::try_out;
use crate::way::{Door, Way, invalid};

/// The largest that is stored: an API server takes objects of some 1.5 MiB, and base64 adds a third.
const MAX_BYTES: usize = 1_000_000;

/// Stores it, or finds what was stored before.
pub(crate) async fn capture(
    way: &Way,
    door: &Door,
    known: &Known,
    secret: &Key,
    account: &Key,
    now: Timestamp,
) -> Result<Captured, Failure> {
    if let Some(captured) = stored(way, known, secret).await? {
        return Ok(captured);
    }
    let definition = definition(known.order.action);
    let attempt = format!("store the undo of {}", known.order.execution);
    let seen = known.look(way, now).await?;
    let context = known.context(now);
    if let Course::Refuse(why) = definition.course(&context, &seen) {
        return Err(refused(&attempt, why));
    }
    let after = match definition.foresees(&known.parameters) && context.restoring().is_none() {
        false => Seen::default(),
        true => {
            let trial = try_out(&door.enter(way, account).await?, known, now).await?;
            match trial.results.errors.first() {
                Some(why) => return Err(refused(&attempt, why.clone())),
                None => trial.after,
            }
        }
    };
    let undo = definition.undo(&context, &seen, &after);
    let kept = Kept::new(&known.order, definition.before(&context, &seen), undo);
    let bytes = serde_json::to_vec(&kept).map_err(|error| invalid(&attempt, &error))?;
    if bytes.len() > MAX_BYTES {
        let why = format!("it takes {} bytes, and at most {MAX_BYTES} can be kept", bytes.len());
        return Err(refused(&attempt, why));
    }
    let path = SECRET.path(secret.namespace.as_deref(), None);
    match way.post(&path, &kept::manifest(&known.order, secret, &bytes), &attempt).await {
        Ok(_) => Ok(kept.told(secret, &sha256(&bytes))),
        Err(failure) if failure.is("AlreadyExists") => {
            let found = stored(way, known, secret).await?;
            found.ok_or(Failure { category: Category::Transient, ..failure })
        }
        Err(failure) => Err(failure),
    }
}

async fn stored(way: &Way, known: &Known, secret: &Key) -> Result<Option<Captured>, Failure> {
    let Some((kept, bytes)) = reading::kept(way, secret).await? else { return Ok(None) };
    if kept.uid != known.order.uid {
        return Err(invalid(&format!("read Secret {secret}"), &"it belongs to another execution"));
    }
    Ok(Some(kept.told(secret, &sha256(&bytes))))
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// It cannot be done to what is there, and asking again will not help.
fn refused(attempt: &str, why: String) -> Failure {
    Failure {
        attempt: attempt.to_owned(),
        category: Category::Permanent,
        reason: REFUSED.to_owned(),
        message: why,
        retry_after: None,
    }
}
