"""Settings of security: nothing of it can be served yet, so setting it refuses to start."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.config.settings import Row

# fmt: off
ROWS: tuple[Row, ...] = (
    (
        "authorizer.class.name", "string", "", "", "low", "read-only", "refused",
        "The Java class that decides who may do what; empty for no restriction.",
    ),
    (
        "connection.failed.authentication.delay.ms", "int", "100", "[0,...]", "low", "read-only", "no_effect",
        "How long the answer to a failed login is held back, in milliseconds.",
    ),
    (
        "connections.max.reauth.ms", "long", "0", "", "medium", "read-only", "no_effect",
        "After this time a client must log in again, in milliseconds; 0 for never.",
    ),
    (
        "delegation.token.expiry.check.interval.ms", "long", "3600000", "[1,...]", "low", "read-only", "no_effect",
        "How often expired delegation tokens are looked for, in milliseconds.",
    ),
    (
        "delegation.token.expiry.time.ms", "long", "86400000", "[1,...]", "medium", "read-only", "no_effect",
        "How long a delegation token is valid before it must be renewed, in milliseconds.",
    ),
    (
        "delegation.token.master.key", "password", None, "", "medium", "read-only", "refused",
        "Older name of `delegation.token.secret.key`.",
    ),
    (
        "delegation.token.max.lifetime.ms", "long", "604800000", "[1,...]", "medium", "read-only", "no_effect",
        "After this time a delegation token cannot be renewed, in milliseconds.",
    ),
    (
        "delegation.token.secret.key", "password", None, "", "medium", "read-only", "refused",
        "The secret that delegation tokens are made and checked with.",
    ),
    (
        "early.start.listeners", "string", None, "", "high", "read-only", "no_effect",
        "Listeners that start before the authorizer is ready.",
    ),
    (
        "password.encoder.cipher.algorithm", "string", "AES/CBC/PKCS5Padding", "", "low", "read-only", "no_effect",
        "Cipher for passwords kept in ZooKeeper.",
    ),
    (
        "password.encoder.iterations", "int", "4096", "[1024,...]", "low", "read-only", "no_effect",
        "Iterations of the key derivation for passwords kept in ZooKeeper.",
    ),
    (
        "password.encoder.key.length", "int", "128", "[8,...]", "low", "read-only", "no_effect",
        "Key length for passwords kept in ZooKeeper, in bits.",
    ),
    (
        "password.encoder.keyfactory.algorithm", "string", None, "", "low", "read-only", "no_effect",
        "Key derivation for passwords kept in ZooKeeper.",
    ),
    (
        "password.encoder.old.secret", "password", None, "", "medium", "read-only", "no_effect",
        "The former `password.encoder.secret`, while it is being changed.",
    ),
    (
        "password.encoder.secret", "password", None, "", "medium", "read-only", "no_effect",
        "The secret that passwords kept in ZooKeeper are encoded with.",
    ),
    (
        "principal.builder.class",
        "class",
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "",
        "medium",
        "per-broker",
        "refused",
        "The Java class that makes a principal of a connection.",
    ),
    (
        "sasl.client.callback.handler.class", "class", None, "", "medium", "read-only", "refused",
        "SASL: Java class of the client's callbacks.",
    ),
    (
        "sasl.enabled.mechanisms", "list", "GSSAPI", "", "medium", "per-broker", "refused",
        "SASL: the mechanisms offered.",
    ),
    (
        "sasl.jaas.config", "password", None, "", "medium", "per-broker", "refused",
        "SASL: login configuration in JAAS format.",
    ),
    (
        "sasl.kerberos.kinit.cmd", "string", "/usr/bin/kinit", "", "medium", "per-broker", "no_effect",
        "Kerberos: path of `kinit`.",
    ),
    (
        "sasl.kerberos.min.time.before.relogin", "long", "60000", "", "medium", "per-broker", "no_effect",
        "Kerberos: the shortest time between two logins, in milliseconds.",
    ),
    (
        "sasl.kerberos.principal.to.local.rules", "list", "DEFAULT", "", "medium", "per-broker", "no_effect",
        "Kerberos: rules from principals to short names.",
    ),
    (
        "sasl.kerberos.service.name", "string", None, "", "medium", "per-broker", "no_effect",
        "Kerberos: name of the service.",
    ),
    (
        "sasl.kerberos.ticket.renew.jitter", "double", "0.05", "", "medium", "per-broker", "no_effect",
        "Kerberos: random part of the renewal time.",
    ),
    (
        "sasl.kerberos.ticket.renew.window.factor", "double", "0.8", "", "medium", "per-broker", "no_effect",
        "Kerberos: the share of a ticket's life after which it is renewed.",
    ),
    (
        "sasl.login.callback.handler.class", "class", None, "", "medium", "read-only", "refused",
        "SASL: Java class of the login's callbacks.",
    ),
    (
        "sasl.login.class", "class", None, "", "medium", "read-only", "refused",
        "SASL: Java class of the login.",
    ),
    (
        "sasl.login.connect.timeout.ms", "int", None, "", "low", "read-only", "no_effect",
        "OAuth: time limit for connecting to the provider, in milliseconds.",
    ),
    (
        "sasl.login.read.timeout.ms", "int", None, "", "low", "read-only", "no_effect",
        "OAuth: time limit for the provider's answer, in milliseconds.",
    ),
    (
        "sasl.login.refresh.buffer.seconds", "short", "300", "", "medium", "per-broker", "no_effect",
        "OAuth: time kept in reserve before a credential ends, in seconds.",
    ),
    (
        "sasl.login.refresh.min.period.seconds", "short", "60", "", "medium", "per-broker", "no_effect",
        "OAuth: the shortest time before a credential is refreshed, in seconds.",
    ),
    (
        "sasl.login.refresh.window.factor", "double", "0.8", "", "medium", "per-broker", "no_effect",
        "OAuth: the share of a credential's life after which it is refreshed.",
    ),
    (
        "sasl.login.refresh.window.jitter", "double", "0.05", "", "medium", "per-broker", "no_effect",
        "OAuth: random part of that time.",
    ),
    (
        "sasl.login.retry.backoff.max.ms", "long", "10000", "", "low", "read-only", "no_effect",
        "OAuth: the longest pause between two tries, in milliseconds.",
    ),
    (
        "sasl.login.retry.backoff.ms", "long", "100", "", "low", "read-only", "no_effect",
        "OAuth: the first pause between two tries, in milliseconds.",
    ),
    (
        "sasl.mechanism.controller.protocol", "string", "GSSAPI", "", "high", "read-only", "refused",
        "SASL: the mechanism towards controllers.",
    ),
    (
        "sasl.mechanism.inter.broker.protocol", "string", "GSSAPI", "", "medium", "per-broker", "refused",
        "SASL: the mechanism between brokers.",
    ),
    (
        "sasl.oauthbearer.clock.skew.seconds", "int", "30", "", "low", "read-only", "no_effect",
        "OAuth: tolerated difference of clocks, in seconds.",
    ),
    (
        "sasl.oauthbearer.expected.audience", "list", None, "", "low", "read-only", "refused",
        "OAuth: the audiences a token must name.",
    ),
    (
        "sasl.oauthbearer.expected.issuer", "string", None, "", "low", "read-only", "refused",
        "OAuth: the issuer a token must name.",
    ),
    (
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", "long", "3600000", "", "low", "read-only", "no_effect",
        "OAuth: how often the provider's keys are read, in milliseconds.",
    ),
    (
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", "long", "10000", "", "low", "read-only", "no_effect",
        "OAuth: the longest pause before the keys are read again, in milliseconds.",
    ),
    (
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "long", "100", "", "low", "read-only", "no_effect",
        "OAuth: the first pause before the keys are read again, in milliseconds.",
    ),
    (
        "sasl.oauthbearer.jwks.endpoint.url", "string", None, "", "medium", "read-only", "refused",
        "OAuth: address of the provider's keys.",
    ),
    (
        "sasl.oauthbearer.scope.claim.name", "string", "scope", "", "low", "read-only", "no_effect",
        "OAuth: name of the claim with the scope.",
    ),
    (
        "sasl.oauthbearer.sub.claim.name", "string", "sub", "", "low", "read-only", "no_effect",
        "OAuth: name of the claim with the subject.",
    ),
    (
        "sasl.oauthbearer.token.endpoint.url", "string", None, "", "medium", "read-only", "refused",
        "OAuth: address where tokens are had.",
    ),
    (
        "sasl.server.callback.handler.class", "class", None, "", "medium", "read-only", "refused",
        "SASL: Java class of the server's callbacks.",
    ),
    (
        "sasl.server.max.receive.size", "int", "524288", "", "medium", "read-only", "no_effect",
        "SASL: the largest request before a login has succeeded, in bytes.",
    ),
    (
        "security.inter.broker.protocol",
        "string",
        "PLAINTEXT",
        "[PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL]",
        "medium",
        "read-only",
        "refused",
        "The security protocol between brokers; only PLAINTEXT can be served yet.",
    ),
    (
        "security.providers", "string", None, "", "low", "read-only", "refused",
        "Java classes that bring security algorithms.",
    ),
    (
        "ssl.allow.dn.changes", "boolean", "false", "", "low", "read-only", "no_effect",
        "TLS: whether a new certificate may carry another distinguished name.",
    ),
    (
        "ssl.allow.san.changes", "boolean", "false", "", "low", "read-only", "no_effect",
        "TLS: whether a new certificate may carry other alternative names.",
    ),
    (
        "ssl.cipher.suites", "list", "", "", "medium", "per-broker", "no_effect",
        "TLS: the cipher suites offered; all by default.",
    ),
    (
        "ssl.client.auth", "string", "none", "[required, requested, none]", "medium", "per-broker", "refused",
        "TLS: whether clients must show a certificate: required, requested or none.",
    ),
    (
        "ssl.enabled.protocols", "list", "TLSv1.2,TLSv1.3", "", "medium", "per-broker", "no_effect",
        "TLS: the versions offered.",
    ),
    (
        "ssl.endpoint.identification.algorithm", "string", "https", "", "low", "per-broker", "no_effect",
        "TLS: how a server's name is checked against its certificate.",
    ),
    (
        "ssl.engine.factory.class", "class", None, "", "low", "per-broker", "refused",
        "TLS: Java class that makes its engines.",
    ),
    (
        "ssl.key.password", "password", None, "", "medium", "per-broker", "refused",
        "TLS: password of the private key.",
    ),
    (
        "ssl.keymanager.algorithm", "string", "SunX509", "", "medium", "per-broker", "no_effect",
        "TLS: algorithm of the key manager.",
    ),
    (
        "ssl.keystore.certificate.chain", "password", None, "", "medium", "per-broker", "refused",
        "TLS: the certificates, as text.",
    ),
    (
        "ssl.keystore.key", "password", None, "", "medium", "per-broker", "refused",
        "TLS: the private key, as text.",
    ),
    (
        "ssl.keystore.location", "string", None, "", "medium", "per-broker", "refused",
        "TLS: file of the key store.",
    ),
    (
        "ssl.keystore.password", "password", None, "", "medium", "per-broker", "refused",
        "TLS: password of the key store.",
    ),
    (
        "ssl.keystore.type", "string", "JKS", "", "medium", "per-broker", "no_effect",
        "TLS: format of the key store.",
    ),
    (
        "ssl.principal.mapping.rules", "string", "DEFAULT", "", "low", "read-only", "no_effect",
        "TLS: rules from a certificate's name to a short name.",
    ),
    (
        "ssl.protocol", "string", "TLSv1.3", "", "medium", "per-broker", "no_effect",
        "TLS: the version preferred.",
    ),
    (
        "ssl.provider", "string", None, "", "medium", "per-broker", "no_effect",
        "TLS: the Java security provider.",
    ),
    (
        "ssl.secure.random.implementation", "string", None, "", "low", "per-broker", "no_effect",
        "TLS: the source of random numbers.",
    ),
    (
        "ssl.trustmanager.algorithm", "string", "PKIX", "", "medium", "per-broker", "no_effect",
        "TLS: algorithm of the trust manager.",
    ),
    (
        "ssl.truststore.certificates", "password", None, "", "medium", "per-broker", "refused",
        "TLS: trusted certificates, as text.",
    ),
    (
        "ssl.truststore.location", "string", None, "", "medium", "per-broker", "refused",
        "TLS: file of the trust store.",
    ),
    (
        "ssl.truststore.password", "password", None, "", "medium", "per-broker", "refused",
        "TLS: password of the trust store.",
    ),
    (
        "ssl.truststore.type", "string", "JKS", "", "medium", "per-broker", "no_effect",
        "TLS: format of the trust store.",
    ),
)
