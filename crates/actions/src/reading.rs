//! What does an action see?

use jiff::Timestamp;
use pawl_api::k8s::SECRET;
use pawl_api::remedy::ActionParameters;
use pawl_machines::failure::Failure;
use pawl_machines::object::Key;
use pawl_machines::remedy::action::kept::{self, Kept};
use pawl_machines::remedy::action::seen::{Place, Read, Seen};
use pawl_machines::remedy::action::{Context, Order, definition};
use serde_json::Value;

use crate::way::{Way, invalid};

/// An order with its parameters read, and what was kept for it.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) order: Order,
    pub(crate) parameters: ActionParameters,
    pub(crate) kept: Option<Kept>,
    pub(crate) undone: Option<Kept>,
}

impl Known {
    pub(crate) fn new(order: &Order) -> Result<Self, Failure> {
        let parameters = order.parameters().map_err(|error| invalid("read an order", &error))?;
        Ok(Self { order: order.clone(), parameters, kept: None, undone: None })
    }

    pub(crate) fn context(&self, now: Timestamp) -> Context<'_> {
        let Self { order, parameters, kept, undone } = self;
        Context { order, parameters, kept: kept.as_ref(), undone: undone.as_ref(), now }
    }

    /// Reads until the action has seen all that matters to it. What one read leads to, the next one finds: no action
    /// needs a third.
    pub(crate) async fn look(&self, way: &Way, now: Timestamp) -> Result<Seen, Failure> {
        const MAX_ROUNDS: usize = 4;
        let (definition, context) = (definition(self.order.action), self.context(now));
        let mut seen = Seen::default();
        for _ in 0..MAX_ROUNDS {
            let reads = definition.reads(&context, &seen);
            if reads.is_empty() {
                return Ok(seen);
            }
            for read in reads {
                match read {
                    Read::Object(place) => {
                        let found = way.get(&place).await?;
                        seen.put(place, found);
                    }
                    Read::List(listing) => {
                        let found = way.list(&listing).await?;
                        seen.put_list(listing, found);
                    }
                }
            }
        }
        Err(invalid("look at the targets", &"the action does not stop asking"))
    }
}

/// What an execution kept, and the text it stands in; `None`: it kept nothing, or that is gone.
pub(crate) async fn kept(way: &Way, secret: &Key) -> Result<Option<(Kept, Vec<u8>)>, Failure> {
    use base64::Engine as _;
    let attempt = format!("read Secret {secret}");
    let place = Place { kind: SECRET, key: secret.clone() };
    let Some(found) = way.get(&place).await? else { return Ok(None) };
    let text = found.get("data").and_then(|data| data.get(kept::KEY)).and_then(Value::as_str);
    let bytes = text.and_then(|text| base64::engine::general_purpose::STANDARD.decode(text).ok());
    let bytes = bytes.ok_or_else(|| invalid(&attempt, &"it does not hold what an execution keeps"))?;
    // The words of the error would quote the text.
    let kept = serde_json::from_slice(&bytes)
        .map_err(|_| invalid(&attempt, &"it does not hold what an execution keeps"))?;
    Ok(Some((kept, bytes)))
}
