//! In whose name is a field written?

use serde_json::Value;

use super::{Call, Core, Subresource};
use crate::apply::{self, ApplyError, Writer};
use crate::status::{Cause, Details, Status};

/// The longest name of a field manager.
pub(super) const MANAGER_MAX: usize = 128;

/// Lays an applied configuration over what is there.
pub(super) fn lay(
    core: &Core,
    call: &Call<'_>,
    live: Option<&Value>,
    config: &Value,
    force: bool,
) -> Result<Value, Status> {
    with_writer(core, call, |writer| {
        apply::apply(live, config, &call.resource.schema, writer, force).map_err(|error| match error {
            ApplyError::Conflicts(ref conflicts) => {
                let causes = conflicts.iter().map(|c| Cause {
                    reason: "FieldManagerConflict".into(),
                    message: c.message.clone(),
                    field: c.field.clone(),
                });
                let details = Details { causes: causes.collect(), ..Details::default() };
                Status::contested(error.to_string(), details)
            }
            ApplyError::BadRequest(why) => Status::bad_request(why),
            ApplyError::Misfit { .. } | ApplyError::Managed(_) => Status::unknown(error.to_string()),
        })
    })
}

/// Writes down who owns what after a write that is not an apply.
pub(super) fn track(core: &Core, call: &Call<'_>, live: Option<&Value>, new: &mut Value) {
    with_writer(core, call, |writer| apply::update(live, new, &call.resource.schema, writer));
}

fn with_writer<T>(core: &Core, call: &Call<'_>, act: impl FnOnce(&Writer<'_>) -> T) -> T {
    let named = call.query.get("fieldManager").filter(|name| !name.is_empty());
    let agent = call.user_agent.split('/').next().unwrap_or_default();
    let fallback: String = agent.chars().filter(|c| !c.is_control()).take(MANAGER_MAX).collect();
    let manager = named.unwrap_or(if fallback.is_empty() { "unknown" } else { &fallback });
    // What this part of the object cannot change is put back, so writing it owns nothing.
    let resets: &[&str] = match call.subresource {
        Subresource::Whole if call.resource.status => &["status"],
        Subresource::Whole | Subresource::Token | Subresource::Eviction | Subresource::Binding => &[],
        Subresource::Status | Subresource::Approval => &["spec"],
        Subresource::Scale | Subresource::Finalize | Subresource::EphemeralContainers => &["status"],
    };
    act(&Writer {
        manager,
        api_version: &call.resource.ids.api_version(),
        subresource: call.subresource.as_str(),
        resets,
        now: core.env.now(),
    })
}
