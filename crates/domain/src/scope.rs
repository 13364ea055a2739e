//! What an API key may do.

use crate::word::words;

words! {
    /// One permission of a key.
    "scope" Scope {
        /// Submit events.
        EventsWrite = "events:write",
        /// Read events, deliveries, attempts and dead letters, without payloads.
        EventsRead = "events:read",
        /// Read payloads and the bodies of responses.
        PayloadsRead = "payloads:read",
        /// Read endpoints, without secrets.
        EndpointsRead = "endpoints:read",
        /// Create, change, delete and test endpoints, and rotate their signing secrets: an answer shows the secret that it made.
        EndpointsWrite = "endpoints:write",
        /// Read the signing secrets of endpoints.
        EndpointsSecrets = "endpoints:secrets",
        /// Change event types.
        EventTypesWrite = "event_types:write",
        /// Change applications.
        ApplicationsWrite = "applications:write",
        /// Open the portal for a customer.
        PortalSessionsCreate = "portal_sessions:create",
        /// Replay, cancel and discard deliveries.
        ReplaysWrite = "replays:write",
        /// Read the audit log.
        AuditRead = "audit:read",
        /// Everything, keys and members included.
        Admin = "admin",
    }
}
