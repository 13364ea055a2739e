//! The words of the audit log: what was done, and by what kind of caller.

use crate::word::words;

words! {
    /// What was done.
    "action" Action {
        /// A tenant was made.
        TenantCreated = "tenant.created",
        /// An API key was made.
        ApiKeyCreated = "api_key.created",
        /// An API key was revoked, for ever.
        ApiKeyRevoked = "api_key.revoked",
        /// An endpoint was created.
        EndpointCreated = "endpoint.created",
        /// An endpoint was changed. `before` and `after` have the fields that the change touched.
        EndpointUpdated = "endpoint.updated",
        /// An endpoint was deleted.
        EndpointDeleted = "endpoint.deleted",
        /// Posthorn disabled an endpoint, for the reason in `state_cause`.
        EndpointDisabled = "endpoint.disabled",
        /// An endpoint was given a new signing secret.
        EndpointSecretRotated = "endpoint.secret_rotated",
        /// The signing secrets of an endpoint were read.
        EndpointSecretsRead = "endpoint.secrets_read",
        /// A dead letter was made due again.
        DeadLetterReplayed = "dead_letter.replayed",
    }
}

words! {
    /// By what kind of caller.
    "kind of caller" ActorKind {
        /// A program with an API key of the tenant.
        ApiKey = "api_key",
        /// Whoever runs `posthorn` on the command line, and so holds the database.
        CommandLine = "command_line",
        /// Posthorn itself.
        Posthorn = "posthorn",
    }
}
