//! The registry of prefixes: an id says what it is of.

use crate::word::words;

words! {
    /// The registry of prefixes: what each id of ours begins with. Some are reserved for what comes later.
    "id prefix" Prefix {
        /// An accepted event.
        Event = "evt",
        /// An endpoint.
        Endpoint = "ep",
        /// A tenant.
        Tenant = "ten",
        /// An application: one customer of a tenant.
        Application = "app",
        /// An event type.
        EventType = "typ",
        /// An API key.
        Key = "key",
        /// A person.
        User = "usr",
        /// A person's membership of a tenant.
        Member = "mem",
        /// An invitation.
        Invitation = "inv",
        /// An incident of an endpoint.
        Incident = "inc",
        /// A replay, and other long work.
        Replay = "rpl",
        /// An entry of the audit log.
        Audit = "aud",
        /// An alert channel.
        Channel = "chn",
        /// A session.
        Session = "ses",
        /// An operator's key.
        Operator = "opr",
        /// A delivery: an event and an endpoint.
        Delivery = "dlv",
        /// An attempt: a delivery, a number and a nonce.
        Attempt = "att",
        /// A signing secret. Internal: never shown.
        Secret = "sec",
        /// A node. Internal.
        Node = "nod",
    }
}

impl Prefix {
    /// True when `text` begins with one of our prefixes and `_`: such a text is an id of ours, or nothing.
    #[must_use]
    pub fn begins(text: &str) -> bool {
        text.split_once('_')
            .is_some_and(|(prefix, _)| prefix.parse::<Self>().is_ok())
    }
}
