//! What a change makes of an endpoint: pure, before anything is written.

use std::collections::BTreeMap;

use posthorn_domain::body::BodyForm;
use posthorn_domain::compat::{CompatError, CompatForm, CompatKind, CompatSecret};
use posthorn_domain::endpoint::{EndpointState, KeepResponses, SigningScheme};
use posthorn_domain::event_type::EventTypePattern;
use posthorn_domain::header::CustomHeaders;
use posthorn_domain::metadata::Metadata;
use posthorn_domain::rate::{RateLimit, RateLimitError};
use posthorn_domain::retry::RetryPolicy;
use posthorn_domain::signature_headers::HeaderPrefix;
use posthorn_domain::url::EndpointUrl;

use super::ConfigureError;
use crate::read::{DatabaseError, Endpoint};

/// What becomes of a value that may be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Patch<T> {
    /// It stays.
    #[default]
    Keep,
    /// It is cleared.
    Clear,
    /// It is this from now on.
    Set(T),
}

/// Changes of named things: each is set, or removed where there is `None`. What is not named stays.
pub type Changes = BTreeMap<String, Option<String>>;

/// What becomes of an endpoint's headers.
#[derive(Clone, PartialEq, Eq)]
pub enum HeaderChanges {
    /// All are removed.
    Clear,
    /// Those that are named are set or removed.
    Merge(Changes),
}

impl HeaderChanges {
    /// Old headers with the changes, checked as a whole.
    pub(super) fn merge(&self, old: &CustomHeaders) -> Result<CustomHeaders, ConfigureError> {
        let Self::Merge(changes) = self else {
            return Ok(CustomHeaders::default());
        };
        let named = |name: &str| changes.keys().any(|other| other.eq_ignore_ascii_case(name));
        let kept = old
            .iter()
            .filter(|(name, _)| !named(name))
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let set = changes
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
        CustomHeaders::parse(kept.chain(set)).map_err(ConfigureError::Headers)
    }
}

/// What becomes of the further signature of an endpoint. What is not named stays.
#[derive(Clone, Default)]
pub struct CompatChanges {
    /// Whose form.
    pub kind: Option<CompatKind>,
    /// Its header; cleared: the other's own.
    pub header: Patch<String>,
    /// Its secret.
    pub secret: Option<CompatSecret>,
}

impl CompatChanges {
    /// The form after the change.
    ///
    /// # Errors
    /// When there was none and the change is not whole, or the header cannot be used.
    pub fn merge(&self, old: Option<&CompatForm>) -> Result<CompatForm, CompatError> {
        let kind = self.kind.or(old.map(CompatForm::kind));
        let kind = kind.ok_or(CompatError::KindMissing)?;
        if old.is_none() && self.secret.is_none() {
            return Err(CompatError::SecretMissing);
        }
        let header = match &self.header {
            Patch::Keep => old.and_then(CompatForm::given_header),
            Patch::Clear => None,
            Patch::Set(header) => Some(header.as_str()),
        };
        CompatForm::new(kind, header)
    }
}

/// What becomes of an endpoint's rate. What is kept stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RateChanges {
    /// Requests a second.
    pub per_second: Option<f64>,
    /// Requests at once; cleared: one.
    pub burst: Patch<u32>,
}

impl RateChanges {
    /// The rate after the change.
    ///
    /// # Errors
    /// When a number is out of its range, or there was no rate and the change names none.
    pub fn merge(&self, old: Option<RateLimit>) -> Result<RateLimit, RateLimitError> {
        let per_second = self
            .per_second
            .or_else(|| old.map(|old| old.per_second()))
            .ok_or(RateLimitError::PerSecondMissing)?;
        let burst = match self.burst {
            Patch::Keep => old.map_or(RateLimit::BURST_DEFAULT, |old| old.burst()),
            Patch::Clear => RateLimit::BURST_DEFAULT,
            Patch::Set(burst) => burst,
        };
        RateLimit::new(per_second, burst)
    }
}

/// Changes of an endpoint. What is `None` or kept stays as it is.
#[derive(Clone, Default)]
pub struct EndpointPatch {
    /// The tenant's own name.
    pub uid: Patch<String>,
    /// Where requests go.
    pub url: Option<EndpointUrl>,
    /// A person's words about it.
    pub description: Option<String>,
    /// What it listens to.
    pub event_types: Option<Vec<EventTypePattern>>,
    /// Headers of its own.
    pub headers: Option<HeaderChanges>,
    /// The policy, whole.
    pub retry_policy: Option<RetryPolicy>,
    /// Every delivery's end, in seconds; cleared: what the policy says.
    pub max_age_s: Patch<u32>,
    /// How many requests may start; cleared: no limit.
    pub rate_limit: Patch<RateChanges>,
    /// How many requests may be under way; cleared: each node's default.
    pub max_in_flight: Patch<u32>,
    /// One deadline over connect, headers and body, in milliseconds.
    pub timeout_ms: Option<u32>,
    /// Statuses that end a delivery at once.
    pub fatal_statuses: Option<Vec<u16>>,
    /// How requests are signed.
    pub signing_schemes: Option<Vec<SigningScheme>>,
    /// What the names of the signature's headers begin with.
    pub header_prefix: Option<HeaderPrefix>,
    /// A further signature in the form of others; cleared: none.
    pub compat: Patch<CompatChanges>,
    /// What its requests carry.
    pub body: Option<BodyForm>,
    /// Which answers are kept.
    pub keep_responses: Option<KeepResponses>,
    /// Pairs that are shown and never sent; cleared: none.
    pub metadata: Patch<Changes>,
    /// What people set.
    pub state: Option<EndpointState>,
    /// Why, in their words.
    pub state_reason: Patch<String>,
}

/// The default end of deliveries under a policy, in seconds.
pub(super) fn default_max_age_s(policy: &RetryPolicy) -> u32 {
    u32::try_from(policy.default_max_age().as_secs()).unwrap_or(u32::MAX)
}

impl EndpointPatch {
    /// The fields with secrets that it touches: whether they differ cannot be told by what is shown of them.
    pub(super) fn secret_fields(&self) -> Vec<&'static str> {
        let headers = self.headers.is_some().then_some("headers");
        let compat = (!matches!(self.compat, Patch::Keep)).then_some("signing");
        headers.into_iter().chain(compat).collect()
    }

    /// Whether it changes nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.uid == Patch::Keep
            && self.url.is_none()
            && self.description.is_none()
            && self.event_types.is_none()
            && self.headers.is_none()
            && self.retry_policy.is_none()
            && self.max_age_s == Patch::Keep
            && self.rate_limit == Patch::Keep
            && self.max_in_flight == Patch::Keep
            && self.timeout_ms.is_none()
            && self.fatal_statuses.is_none()
            && self.signing_schemes.is_none()
            && self.header_prefix.is_none()
            && matches!(self.compat, Patch::Keep)
            && self.body.is_none()
            && self.keep_responses.is_none()
            && self.metadata == Patch::Keep
            && self.state.is_none()
            && self.state_reason == Patch::Keep
    }

    /// The endpoint after the change, headers aside.
    pub(super) fn merge(self, mut endpoint: Endpoint) -> Result<Endpoint, ConfigureError> {
        apply(self.uid, &mut endpoint.uid);
        set(
            self.url.map(|url| url.as_str().to_owned()),
            &mut endpoint.url,
        );
        set(self.description, &mut endpoint.description);
        let patterns = self.event_types.map(|patterns| {
            patterns
                .iter()
                .map(|pattern| pattern.as_str().to_owned())
                .collect()
        });
        set(patterns, &mut endpoint.event_types);
        set(self.retry_policy, &mut endpoint.retry_policy);
        merge_max_age(&self.max_age_s, &mut endpoint);
        match self.rate_limit {
            Patch::Keep => {}
            Patch::Clear => endpoint.rate_limit = None,
            Patch::Set(changes) => {
                let merged = changes.merge(endpoint.rate_limit);
                endpoint.rate_limit = Some(merged.map_err(ConfigureError::RateLimit)?);
            }
        }
        apply(self.max_in_flight, &mut endpoint.max_in_flight);
        set(self.timeout_ms, &mut endpoint.timeout_ms);
        set(self.fatal_statuses, &mut endpoint.fatal_statuses);
        set(self.signing_schemes, &mut endpoint.signing_schemes);
        set(self.header_prefix, &mut endpoint.header_prefix);
        match self.compat {
            Patch::Keep => {}
            Patch::Clear => endpoint.compat = None,
            Patch::Set(changes) => {
                endpoint.compat = Some(changes.merge(endpoint.compat.as_ref())?);
            }
        }
        set(self.body, &mut endpoint.body);
        set(self.keep_responses, &mut endpoint.keep_responses);
        merge_metadata(self.metadata, &mut endpoint.metadata)?;
        merge_state(self.state, self.state_reason, &mut endpoint);
        Ok(endpoint)
    }
}

fn set<T>(change: Option<T>, value: &mut T) {
    if let Some(change) = change {
        *value = change;
    }
}

fn apply<T>(change: Patch<T>, value: &mut Option<T>) {
    match change {
        Patch::Keep => {}
        Patch::Clear => *value = None,
        Patch::Set(new) => *value = Some(new),
    }
}

/// A default follows the policy; a number that was given stays.
fn merge_max_age(change: &Patch<u32>, endpoint: &mut Endpoint) {
    match change {
        Patch::Keep => {}
        Patch::Clear => endpoint.max_age_given = false,
        Patch::Set(max_age_s) => {
            endpoint.max_age_given = true;
            endpoint.max_age_s = *max_age_s;
        }
    }
    if !endpoint.max_age_given {
        endpoint.max_age_s = default_max_age_s(&endpoint.retry_policy);
    }
}

fn merge_metadata(change: Patch<Changes>, metadata: &mut String) -> Result<(), ConfigureError> {
    let mut pairs = BTreeMap::new();
    match change {
        Patch::Keep => return Ok(()),
        Patch::Clear => {}
        Patch::Set(changes) => {
            pairs = serde_json::from_str(metadata)
                .map_err(|_| DatabaseError::Unreadable("the endpoint's metadata"))?;
            for (name, value) in changes {
                match value {
                    Some(value) => pairs.insert(name, value),
                    None => pairs.remove(&name),
                };
            }
        }
    }
    let merged = Metadata::parse(pairs).map_err(ConfigureError::Metadata)?;
    *metadata = serde_json::to_string(&merged)?;
    Ok(())
}

/// A state that a person sets has no cause of ours, and its own reason or none.
fn merge_state(state: Option<EndpointState>, reason: Patch<String>, endpoint: &mut Endpoint) {
    if let Some(state) = state {
        if state != endpoint.state {
            endpoint.state_reason = None;
        }
        endpoint.state = state;
        endpoint.state_cause = None;
    }
    apply(reason, &mut endpoint.state_reason);
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use posthorn_domain::endpoint::StateCause;
    use posthorn_domain::id::EndpointId;
    use posthorn_domain::retry::Preset;

    use super::*;
    use crate::read::EndpointHealth;

    fn endpoint() -> Endpoint {
        let retry_policy = RetryPolicy::default();
        Endpoint {
            id: EndpointId::from_uuid(uuid::Uuid::nil()),
            uid: None,
            url: "https://example.com/".into(),
            description: String::new(),
            event_types: vec!["**".into()],
            header_names: Vec::new(),
            max_age_s: default_max_age_s(&retry_policy),
            max_age_given: false,
            retry_policy,
            rate_limit: None,
            max_in_flight: None,
            timeout_ms: 15_000,
            fatal_statuses: Vec::new(),
            signing_schemes: vec![SigningScheme::V1],
            header_prefix: HeaderPrefix::default(),
            compat: None,
            body: BodyForm::Payload,
            keep_responses: KeepResponses::Failures,
            metadata: r#"{"a":"1","b":"2"}"#.into(),
            state: EndpointState::Enabled,
            state_cause: None,
            state_reason: None,
            health: EndpointHealth::default(),
            created_at: DateTime::UNIX_EPOCH,
            updated_at: DateTime::UNIX_EPOCH,
        }
    }

    fn financial() -> RetryPolicy {
        RetryPolicy::Preset {
            name: Preset::Financial,
        }
    }

    fn changes(pairs: &[(&str, Option<&str>)]) -> Changes {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned)))
            .collect()
    }

    #[test]
    fn an_empty_patch_changes_nothing() {
        assert!(EndpointPatch::default().is_empty());
        assert_eq!(
            EndpointPatch::default().merge(endpoint()).unwrap(),
            endpoint()
        );
    }

    #[test]
    fn a_default_end_follows_the_policy() {
        let after = EndpointPatch {
            retry_policy: Some(financial()),
            ..Default::default()
        }
        .merge(endpoint())
        .unwrap();
        assert!(after.max_age_s > endpoint().max_age_s);
    }

    #[test]
    fn a_given_end_stays_when_the_policy_changes() {
        let before = Endpoint {
            max_age_s: 600,
            max_age_given: true,
            ..endpoint()
        };
        let after = EndpointPatch {
            retry_policy: Some(financial()),
            ..Default::default()
        }
        .merge(before)
        .unwrap();
        assert_eq!(after.max_age_s, 600);
    }

    #[test]
    fn a_rate_is_merged_number_by_number() {
        let rate = |per_second, burst| RateLimit::new(per_second, burst).unwrap();
        let merge = |per_second, burst, old| RateChanges { per_second, burst }.merge(old);
        assert_eq!(merge(Some(5.0), Patch::Keep, None), Ok(rate(5.0, 1)));
        assert_eq!(
            merge(None, Patch::Set(3), Some(rate(5.0, 1))),
            Ok(rate(5.0, 3))
        );
        assert_eq!(
            merge(Some(7.0), Patch::Clear, Some(rate(5.0, 3))),
            Ok(rate(7.0, 1))
        );
        assert_eq!(
            merge(None, Patch::Set(3), None),
            Err(RateLimitError::PerSecondMissing)
        );
    }

    #[test]
    fn a_form_of_others_is_merged_and_its_header_is_the_others_own_unless_one_was_given() {
        let secret = || CompatSecret::parse("0123456789abcdef").ok();
        let form = |kind, header| CompatForm::new(kind, header).unwrap();
        let merge = |kind, header, secret, old: Option<&CompatForm>| {
            let changes = CompatChanges {
                kind,
                header,
                secret,
            };
            changes.merge(old)
        };
        let (github, stripe) = (CompatKind::Github, CompatKind::Stripe);
        let old = form(github, None);
        assert_eq!(
            merge(Some(github), Patch::Keep, secret(), None),
            Ok(form(github, None))
        );
        assert_eq!(
            merge(Some(stripe), Patch::Keep, None, Some(&old)),
            Ok(form(stripe, None))
        );
        let given = form(github, Some("x-own"));
        assert_eq!(
            merge(Some(stripe), Patch::Keep, None, Some(&given)),
            Ok(form(stripe, Some("x-own")))
        );
        assert_eq!(
            merge(None, Patch::Clear, None, Some(&given)),
            Ok(form(github, None))
        );
        assert_eq!(
            merge(None, Patch::Keep, secret(), None),
            Err(CompatError::KindMissing)
        );
        assert_eq!(
            merge(Some(github), Patch::Keep, None, None),
            Err(CompatError::SecretMissing)
        );
    }

    #[test]
    fn metadata_that_is_not_named_stays() {
        let patch = Patch::Set(changes(&[("a", None), ("c", Some("3"))]));
        let after = EndpointPatch {
            metadata: patch,
            ..Default::default()
        }
        .merge(endpoint())
        .unwrap();
        assert_eq!(after.metadata, r#"{"b":"2","c":"3"}"#);
    }

    #[test]
    fn headers_that_are_not_named_stay_and_names_have_no_case() {
        let old = CustomHeaders::parse([("x-one", "1"), ("x-two", "2"), ("x-three", "3")]).unwrap();
        let patch = HeaderChanges::Merge(changes(&[("X-One", Some("new")), ("X-TWO", None)]));
        let merged = patch.merge(&old).unwrap();
        assert_eq!(merged.get("x-one"), Some("new"));
        assert_eq!(merged.get("x-two"), None);
        assert_eq!(merged.get("x-three"), Some("3"));
    }

    #[test]
    fn enabling_clears_what_posthorn_disabled_it_for() {
        let before = Endpoint {
            state: EndpointState::Disabled,
            state_cause: Some(StateCause::Gone),
            state_reason: Some("old".into()),
            ..endpoint()
        };
        let after = EndpointPatch {
            state: Some(EndpointState::Enabled),
            ..Default::default()
        }
        .merge(before)
        .unwrap();
        assert_eq!((after.state_cause, after.state_reason), (None, None));
    }
}
