//! How is a question in the form of an object answered?

use std::sync::{Arc, LazyLock};

use serde_json::Value;

use super::options::WriteOptions;
use super::{Answer, Call, Core, Outcome, content};
use crate::access::{self, Review};
use crate::resources::Resource;
use crate::resources::builtin;
use crate::status::Status;

/// What is posted to `serviceaccounts/{name}/token`.
static TOKEN_REQUEST: LazyLock<Arc<Resource>> = LazyLock::new(|| Arc::new(builtin::TOKEN_REQUEST.resource()));

/// POST of a review.
pub(super) fn review(core: &Core, call: &Call<'_>, review: Review) -> Result<Outcome, Status> {
    if call.resource.ids.namespaced && call.namespace.is_empty() {
        return Err(Status::method_not_allowed());
    }
    answered(call, |object| access::review(core, call, review, object))
}

/// POST of a token request.
pub(super) fn token(core: &Core, call: &Call<'_>) -> Result<Outcome, Status> {
    let kind = &*TOKEN_REQUEST;
    let request = Call { resource: kind, ..*call };
    answered(&request, |object| access::request_token(core, call, kind, object))
}

/// Reads the object that was posted, and answers it.
fn answered(call: &Call<'_>, answer: impl FnOnce(Value) -> Result<Value, Status>) -> Result<Outcome, Status> {
    let options = WriteOptions::read(call)?;
    let (mut object, repeated) = content::decode(call, options.validation)?;
    let warnings = content::reshape(call.resource, &mut object, options.validation)?;
    Ok(Outcome { answer: Answer::Value(201, answer(object)?), warnings }.warning(repeated))
}
